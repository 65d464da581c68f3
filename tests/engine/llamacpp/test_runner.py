"""Our scheduler and prefix tree over the cells of llama.cpp: no answer is wrong, and no cell stays behind."""

from __future__ import annotations

import random

import numpy as np
import pytest
from fake_cells import FakeCells
from fake_runner import POISON, answer_to
from scheduling import CONTEXT, Client, Office
from tiny_models import write_tiny

from ktdesk_engine.errors import ContextOverflowError, EngineError
from ktdesk_engine.gguf.file import GGUFFile
from ktdesk_engine.kv_cache import PAGE_SIZE, CachedSequence
from ktdesk_engine.llamacpp.pages import LlamaPages
from ktdesk_engine.llamacpp.prefixes import LlamaPrefixCache
from ktdesk_engine.llamacpp.runner import LlamaRunner
from ktdesk_engine.scheduler.limits import SchedulerLimits
from ktdesk_engine.scheduler.scheduler import Scheduler
from ktdesk_engine.tokenizer.tokenizer import Tokenizer

NUM_IDS = 8


class LlamaOffice(Office):
    """The scheduler over cells."""

    def __init__(
        self, tokenizer: Tokenizer, num_pages: int = 64, num_holders: int = 16, *, can_cut: bool = True
    ) -> None:
        super().__init__(tokenizer, num_pages)
        self.cells = FakeCells(num_pages * PAGE_SIZE, self.clock, can_cut=can_cut)
        self.pages = LlamaPages(self.cells, num_pages, 8, range(NUM_IDS, NUM_IDS + num_holders))
        self.llama = LlamaRunner(self.cells, self.pages, range(NUM_IDS), CONTEXT, largest_chunk=128)
        self.cache = LlamaPrefixCache(self.pages)
        self.scheduler = Scheduler(self.llama, self.cache, self.pages, SchedulerLimits(max_running=4), 128, self.clock)

    def check_answers(self, clients: list[Client], num_tokens: int) -> None:
        for client in clients:
            assert not client.errors
            assert client.token_ids == answer_to(client.prompt, num_tokens)

    def check_cells(self) -> None:
        """Nobody runs: cells are those of pages that the tree keeps."""
        self.cache.check_integrity()
        num_kept = self.pages.num_pages - self.pages.num_free_pages
        self.llama.release(CachedSequence())  # what left is gone now
        assert len(self.cells.cells) == num_kept * PAGE_SIZE


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    path = tmp_path_factory.mktemp("llamacpp") / "model.gguf"
    write_tiny("llama-moe", path)
    with GGUFFile.open(path) as file:
        return Tokenizer.from_gguf(file)


def prompt(length: int, seed: int = 0) -> list[int]:
    return np.random.default_rng(seed).integers(0, 250, length).tolist()


def test_a_prefix_that_was_computed_is_not_computed_again(tokenizer: Tokenizer) -> None:
    office = LlamaOffice(tokenizer)
    first = office.ask(prompt(300), num_tokens=60)
    office.run()
    num_computed = office.cells.num_computed
    second = office.ask([*first.prompt, *first.token_ids, *prompt(9, 1)], num_tokens=5)
    office.run()
    assert office.cells.num_computed - num_computed == (300 + 60 + 9 - 320) + 4
    office.check_answers([second], 5)
    office.check_cells()


def test_the_same_prompt_at_the_same_time_ends_in_the_same_cells(tokenizer: Tokenizer) -> None:
    office = LlamaOffice(tokenizer)
    clients = [office.ask(prompt(200), num_tokens=80) for _ in range(4)]
    office.run()
    office.check_answers(clients, 80)
    office.check_cells()
    assert len(office.cells.cells) == 256


@pytest.mark.parametrize("num_holders", [0, 2, 16])
def test_any_order_of_requests_and_cancels_gives_right_answers(tokenizer: Tokenizer, num_holders: int) -> None:
    """With few holders branches are forgotten; with none, as for models with states, nothing is shared."""
    num_preempted = 0
    for seed in range(3):
        chance = random.Random(seed)
        office = LlamaOffice(tokenizer, num_pages=9, num_holders=num_holders, can_cut=num_holders > 0)
        begins = [prompt(chance.randint(1, 300), number) for number in range(4)]
        clients: list[Client] = []
        gone: list[Client] = []
        for number in range(16):
            begin = chance.choice(begins)
            text = begin[: chance.randint(1, len(begin))] + prompt(chance.randint(0, 40), 100 + number)
            clients.append(office.ask(text, num_tokens=80))
            for _ in range(chance.randint(0, 25)):
                office.scheduler.step()
            if chance.random() < 0.3:
                gone.append(chance.choice(clients))
                office.cancel(gone[-1])
            office.cache.check_integrity()
        office.run()
        office.check_answers([client for client in clients if client not in gone], 80)
        office.check_cells()
        counters = office.scheduler.stats().counters
        assert (counters.num_cached_tokens > 0) == (num_holders > 0)
        num_preempted += counters.num_preempted
    assert num_preempted > 0


@pytest.mark.parametrize("can_cut", [True, False])
def test_one_that_cannot_be_computed_does_not_harm_the_others(tokenizer: Tokenizer, can_cut: bool) -> None:
    office = LlamaOffice(tokenizer, num_holders=4 if can_cut else 0, can_cut=can_cut)
    others = [office.ask(prompt(100, seed), num_tokens=50) for seed in range(2)]
    poisoned = office.ask([*prompt(100, 5), POISON], num_tokens=50)
    office.run()
    assert isinstance(poisoned.errors[0], EngineError)
    office.check_answers(others, 50)
    office.check_cells()


def test_what_does_not_fit_is_refused_and_nothing_stays_behind(tokenizer: Tokenizer) -> None:
    office = LlamaOffice(tokenizer, num_pages=2)
    sequence = CachedSequence()
    with pytest.raises(ContextOverflowError, match="129 tokens"):
        office.llama.prefill(sequence, prompt(129))
    assert sequence.length == 128
    office.llama.release(sequence)
    assert office.pages.num_free_pages == 2
    office.check_cells()


def test_scores_come_chunk_by_chunk(tokenizer: Tokenizer) -> None:
    office = LlamaOffice(tokenizer)
    sequence, text = CachedSequence(), prompt(150)
    rows = np.concatenate(list(office.llama.all_logits(sequence, text)))
    assert [int(row.argmax()) for row in rows] == [answer_to(text[: t + 1], 1)[0] for t in range(150)]
    office.llama.release(sequence)
    office.check_cells()
