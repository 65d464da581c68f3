"""Models that llama.cpp computes: the same answers as ours where both know a model, and all that a request can ask."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from string import ascii_lowercase

import numpy as np
import pytest
from gguf import GGUFWriter
from llamacpp_models import write_gemma, write_mamba
from tiny_models import TINY, write_model

from ktdesk_engine.answer import StreamEvent
from ktdesk_engine.config import EngineConfig, Request, SamplingConfig
from ktdesk_engine.engine import Engine
from ktdesk_engine.engine_choice import load_engine
from ktdesk_engine.engine_thread import EngineThread
from ktdesk_engine.errors import ConfigError, EngineError, ModelFileError, ResourceError, UnsupportedError
from ktdesk_engine.guidance import Grammar, Guidance
from ktdesk_engine.load_progress import LoadProgress
from ktdesk_engine.text_engine import TextEngine

pytestmark = pytest.mark.llamacpp

EXACT = EngineConfig(engine="llamacpp", cache_type="float32", num_threads=1, context=512)
GREEDY = SamplingConfig(temperature=0)
PROMPT = tuple(range(40, 140))


@pytest.fixture(scope="module")
def gemma(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_gemma(tmp_path_factory.mktemp("gemma") / "gemma.gguf")


@pytest.fixture(scope="module")
def mamba(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_mamba(tmp_path_factory.mktemp("mamba") / "mamba.gguf")


def tokens_of(events: Sequence[StreamEvent]) -> list[int]:
    return [token_id for event in events for token_id in event.token_ids]


@pytest.mark.parametrize("name", ["llama-dense", "qwen3", "llama-moe", "gpt-oss"])
def test_a_model_that_both_know_has_the_same_log_probabilities_and_tokens(
    tiny_model: Callable[[str], Path], name: str
) -> None:
    path = tiny_model(name)
    sampled = Request(PROMPT, SamplingConfig(temperature=0.8, seed=5), max_tokens=24, num_logprobs=2, ignore_eos=True)
    greedy = replace(sampled, sampling=GREEDY)
    with load_engine(path, EXACT) as theirs, Engine.load(path, EngineConfig(compute="float32")) as ours:
        np.testing.assert_allclose(theirs.score(PROMPT), ours.score(PROMPT), atol=1e-3)
        for request in (sampled, greedy):
            answers = [list(engine.stream(request)) for engine in (theirs, ours)]
            assert tokens_of(answers[0]) == tokens_of(answers[1])
            for one, other in zip(*answers, strict=True):
                assert one.logprobs[0].logprob == pytest.approx(other.logprobs[0].logprob, abs=1e-3)
        assert theirs.chat_ids([{"role": "user", "content": "hi"}]) == ours.chat_ids(
            [{"role": "user", "content": "hi"}]
        )


@pytest.mark.parametrize("model", ["gemma", "mamba"])
def test_a_model_that_ours_does_not_know_answers_as_it_scores(model: str, request: pytest.FixtureRequest) -> None:
    """Token by token, after a prompt in one piece or in many, gives what scoring the whole gives."""
    path = request.getfixturevalue(model)
    with pytest.raises(UnsupportedError, match=model):
        Engine.load(path)
    for chunk in (512, 33):
        with load_engine(path, replace(EXACT, engine="auto", prefill_chunk=chunk)) as engine:
            assert engine.config.engine == "llamacpp"
            assert engine.missing
            asked = Request(PROMPT, GREEDY, max_tokens=100, num_logprobs=0, ignore_eos=True)
            events = list(engine.stream(asked))
            answer = tokens_of(events)
            scores = engine.score([*PROMPT, *answer])
            assert answer == scores[len(PROMPT) - 1 : -1].argmax(axis=-1).tolist()
            told = [event.logprobs[0].logprob for event in events]
            np.testing.assert_allclose(told, scores[len(PROMPT) - 1 : -1].max(axis=-1), atol=1e-3)
            assert engine.cache.num_free_pages == 8


@pytest.mark.parametrize("model", ["gemma", "mamba"])
def test_answers_are_the_same_alone_and_in_company_cached_or_not(model: str, request: pytest.FixtureRequest) -> None:
    path = request.getfixturevalue(model)
    prompts = [PROMPT, (*PROMPT[:70], 3, 4, 5), (*PROMPT, 9), tuple(range(200, 260))]
    asked = [Request(prompt, GREEDY, max_tokens=90, ignore_eos=True) for prompt in prompts]
    with load_engine(path, EXACT) as engine:
        alone = [tokens_of(list(engine.stream(one))) for one in asked]
    with EngineThread(load_engine(path, replace(EXACT, num_sequences=4))) as thread:
        for _ in range(3):
            streams = [thread.submit(one) for one in asked]
            assert [tokens_of(list(stream)) for stream in streams] == alone
        stats = thread.stats()
        assert stats.counters.num_failed == 0
        assert (stats.counters.num_cached_tokens > 0) == (model == "gemma")
        assert stats.cache.num_free_pages + stats.cache.num_idle_pages == 32


def test_one_that_leaves_frees_its_place(gemma: Path) -> None:
    with EngineThread(load_engine(gemma, EXACT)) as thread:
        stream = thread.submit(Request(PROMPT, GREEDY, max_tokens=400, ignore_eos=True))
        next(iter(stream))
        stream.close()
        assert len(tokens_of(list(thread.submit(Request(PROMPT, GREEDY, max_tokens=400, ignore_eos=True))))) == 400
        assert thread.stats().counters.num_cancelled == 1


def test_stop_strings_seeds_biases_and_grammars_hold(gemma: Path) -> None:
    with load_engine(gemma, EXACT) as engine:

        def answer(request: Request) -> str:
            return "".join(event.text for event in engine.stream(request))

        others = [token_id for token_id in range(engine.tokenizer.vocab_size) if chr(token_id) not in ascii_lowercase]
        only_letters = SamplingConfig(
            temperature=1000, top_k=0, top_p=1, min_p=0, seed=3, logit_bias=tuple((i, -math.inf) for i in others)
        )
        free = Request(PROMPT, only_letters, max_tokens=30, is_continuation=True)
        text = answer(free)
        assert len(text) == 30
        assert answer(free) == text
        assert answer(replace(free, stop=(text[5:8],))) == text[:5]
        guidance = Guidance(engine.tokenizer)
        grammar = Grammar("regex", "[0-9]{4}-[ab]+x")
        held = replace(free, sampling=GREEDY, make_constraint=lambda: guidance.constraint(grammar))
        assert re.match("[0-9]{4}-[ab]+x?", answer(held))
        greedy = replace(only_letters, temperature=0)
        likeliest = answer(replace(free, sampling=greedy))[0]
        banned = replace(greedy, logit_bias=(*greedy.logit_bias, (ord(likeliest), -math.inf)))
        assert likeliest not in answer(replace(free, sampling=banned))


def test_a_tokenizer_that_ours_does_not_know_is_theirs(tmp_path: Path) -> None:
    def edit(writer: GGUFWriter) -> None:
        writer.kv_data[0]["tokenizer.ggml.pre"].value = "falcon"

    path = tmp_path / "falcon.gguf"
    write_model(TINY["llama-dense"], path, "falcon", seed=2, edit=edit)
    with pytest.raises(UnsupportedError, match="falcon"):
        Engine.load(path)
    with load_engine(path, replace(EXACT, engine="auto")) as engine:
        tokenizer = engine.tokenizer
        for text in ("the other one", " a\n\nb  c", "日本 é", "<|eos|> is text", ""):
            ids = tokenizer.encode(text)
            assert tokenizer.decode(ids) == text
            assert tokenizer.eos_id not in ids
        assert tokenizer.encode("<|eos|>x", parse_special=True)[0] == tokenizer.eos_id
        assert "the" in [tokenizer.token_text(token_id) for token_id in tokenizer.encode("the")]
        assert len(list(engine.stream(Request(engine.prompt_ids("the"), GREEDY, max_tokens=3, ignore_eos=True)))) == 3


@pytest.mark.parametrize("model", ["gemma", "mamba"])
def test_without_a_wish_the_context_is_what_the_model_was_trained_for(
    model: str, request: pytest.FixtureRequest
) -> None:
    path, trained = request.getfixturevalue(model), {"gemma": 512, "mamba": 1 << 20}[model]
    with load_engine(path, replace(EXACT, context=None)) as engine:
        assert engine.context == trained
        assert len(list(engine.stream(Request(PROMPT, GREEDY, max_tokens=3, ignore_eos=True)))) == 3


def test_settings_of_our_kernels_are_refused_rather_than_ignored(gemma: Path) -> None:
    for changed in (replace(EXACT, compute="int8"), replace(EXACT, isa="avx2"), replace(EXACT, deterministic=True)):
        with pytest.raises(ConfigError, match=r"llama\.cpp"):
            load_engine(gemma, changed)


def test_what_it_cannot_load_is_one_line_with_its_reason(gemma: Path, tmp_path: Path) -> None:
    damaged = tmp_path / "damaged.gguf"
    write_gemma(damaged, lambda writer: writer.add_uint32("gemma.attention.head_count_kv_", 1))
    data = bytearray(damaged.read_bytes())
    damaged.write_bytes(data[: len(data) - 4096])
    with pytest.raises(ModelFileError):
        load_engine(damaged, EXACT)
    unknown = tmp_path / "unknown.gguf"
    write_model(replace(TINY["llama-dense"], arch="nobody-knows"), unknown, "unknown", seed=1)
    with pytest.raises(UnsupportedError, match=r"unknown\.gguf.*nobody-knows"):
        load_engine(unknown, EngineConfig())
    with pytest.raises(ResourceError, match=r"GiB"):
        load_engine(gemma, replace(EXACT, context=512, num_sequences=10_000_000))


def test_weights_that_are_no_numbers_are_found_while_loading(tmp_path: Path) -> None:
    def edit(writer: GGUFWriter) -> None:
        writer.tensors[0]["blk.0.ffn_up.weight"].tensor[3, 5] = np.nan

    with pytest.raises(EngineError, match=r"damaged\.gguf"):
        load_engine(write_gemma(tmp_path / "damaged.gguf", edit), EXACT)


def test_loading_is_told_and_can_be_stopped(gemma: Path) -> None:
    states: list[LoadProgress] = []
    load_engine(gemma, EXACT, states.append).close()
    assert states[-1].done_bytes == states[-1].total_bytes > 0

    class StopError(Exception):
        pass

    def stop(state: LoadProgress) -> None:
        raise StopError

    with pytest.raises(StopError):
        load_engine(gemma, EXACT, stop)


def test_a_closed_engine_says_so_and_may_be_closed_again(gemma: Path) -> None:
    engine: TextEngine = load_engine(gemma, EXACT)
    engine.close()
    engine.close()
    with pytest.raises(ValueError, match="closed"):
        engine.score(PROMPT)


def test_the_library_writes_nothing_to_the_terminal(gemma: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with load_engine(gemma, EXACT) as engine:
        engine.score(PROMPT)
    os.sync()
    assert capfd.readouterr() == ("", "")
