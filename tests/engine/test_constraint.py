"""Answers whose tokens are narrowed by a constraint, and answers that spell their control tokens."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from ktdesk_engine.config import Request, SamplingConfig
from ktdesk_engine.engine import Engine
from ktdesk_engine.errors import RequestError
from ktdesk_engine.guidance import Grammar, Guidance
from ktdesk_engine.kernels import Floats

GREEDY = SamplingConfig(temperature=0)


@pytest.fixture(scope="module")
def engine(tiny_model: Callable[[str], Path]) -> Iterator[Engine]:
    with Engine.load(tiny_model("llama-moe")) as engine:
        yield engine


class OnlyThese:
    """Allows one list of tokens, in its order."""

    def __init__(self, token_ids: list[int]) -> None:
        self._left = list(token_ids)

    def allowed(self, logits: Floats) -> Floats:
        only = np.full_like(logits, -np.inf)
        only[self._left[0]] = logits[self._left[0]]
        return only

    def accept(self, token_id: int) -> None:
        assert token_id == self._left.pop(0)


def answer(engine: Engine, request: Request) -> str:
    return "".join(event.text for event in engine.stream(request))


def test_a_constraint_chooses_and_is_made_anew_for_each_answer(engine: Engine) -> None:
    end_id = min(engine.tokenizer.end_ids)
    ids = [*engine.tokenizer.encode("the end"), end_id]
    request = Request((1, 2), GREEDY, make_constraint=lambda: OnlyThese(ids))
    assert [answer(engine, request) for _ in range(2)] == ["the end", "the end"]


def test_logprobs_are_those_of_the_model_itself(engine: Engine) -> None:
    free = next(iter(engine.stream(Request((1, 2), GREEDY, 1, num_logprobs=1))))
    other = (free.token_ids[0] + 1) % 200
    held = Request((1, 2), GREEDY, 1, num_logprobs=1, make_constraint=lambda: OnlyThese([other]))
    event = next(iter(engine.stream(held)))
    assert event.token_ids == (other,)
    assert event.logprobs[0].top == free.logprobs[0].top


def test_a_grammar_ends_the_answer(engine: Engine) -> None:
    guidance = Guidance(engine.tokenizer)
    request = Request((1, 2), GREEDY, make_constraint=lambda: guidance.constraint(Grammar("regex", "an?|other")))
    assert answer(engine, request) in ("a", "an", "other")


def test_a_constraint_that_cannot_be_made_ends_the_answer_alone(engine: Engine) -> None:
    def refuse() -> OnlyThese:
        raise RequestError("no")

    with pytest.raises(RequestError, match="no"):
        answer(engine, Request((1, 2), GREEDY, make_constraint=refuse))
    assert answer(engine, Request((1, 2), GREEDY, 1)) is not None


def test_only_control_tokens_that_are_asked_for_are_spelled(engine: Engine) -> None:
    bos_id = engine.tokenizer.bos_id
    assert bos_id is not None
    ids = [*engine.tokenizer.encode("a"), bos_id, *engine.tokenizer.encode("b"), min(engine.tokenizer.end_ids)]
    request = Request((1, 2), GREEDY, make_constraint=lambda: OnlyThese(ids))
    assert answer(engine, request) == "ab"
    shown = Request((1, 2), GREEDY, make_constraint=lambda: OnlyThese(ids), shown_ids=frozenset({bos_id}))
    assert answer(engine, shown) == "a<|bos|>b"
    assert engine.tokenizer.special_ids(["<|bos|>", "a", "<none>"]) == {"<|bos|>": bos_id}
