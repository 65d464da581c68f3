"""Every architecture against numbers that another engine computed: see tests/data/golden/README.md."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from scoring import load_model, log_softmax, logits, score
from tiny_models import SHA256, TINY

from ktdesk_engine import kernels
from ktdesk_engine.kv_cache import CachedSequence, KVCache

GOLDEN = Path(__file__).parents[1] / "data" / "golden"
TOLERANCE = 1e-4
SMALLEST_FLOAT32 = 2.0**-149
LOG_OF_SMALLEST_NORMAL = -87.3
"""Below, the golden numbers are logarithms of denormal float32 probabilities: whole multiples of the smallest."""

TinyPath = Callable[[str], Path]

every_model = pytest.mark.parametrize("name", TINY)


class GoldenCase(NamedTuple):
    prompt: list[int]
    answer: list[int]
    log_probabilities: np.ndarray
    """(steps, V): row 0 after the prompt, the next each after one more token of the answer."""

    @property
    def token_ids(self) -> list[int]:
        """All that is fed: the last token of the answer is not."""
        return self.prompt + self.answer[:-1]


def golden_cases(name: str) -> list[GoldenCase]:
    with np.load(GOLDEN / f"{name}.npz") as arrays:
        return [
            GoldenCase(
                arrays[f"prompt_{i}"].tolist(), arrays[f"tokens_{i}"].tolist(), arrays[f"logprobs_{i}"].astype(float)
            )
            for i in range(len(arrays.files) // 3)
        ]


def assert_golden(got: np.ndarray, case: GoldenCase) -> None:
    """got: (len(case.token_ids), V) log-probabilities."""
    got, want = got[len(case.prompt) - 1 :], case.log_probabilities
    assert got.shape == want.shape
    normal = want > LOG_OF_SMALLEST_NORMAL
    assert np.abs(got - want)[normal].max() < TOLERANCE
    probabilities = np.exp(want[~normal])
    errors = np.abs(np.exp(got[~normal]) - probabilities)
    assert np.all(errors <= SMALLEST_FLOAT32 / 2 + TOLERANCE * np.maximum(probabilities, SMALLEST_FLOAT32))


@every_model
def test_the_tiny_model_is_the_one_that_the_golden_numbers_are_of(name: str, tiny_model: TinyPath) -> None:
    assert hashlib.sha256(tiny_model(name).read_bytes()).hexdigest() == SHA256[name]


@every_model
@pytest.mark.parametrize("isa", kernels.isas())
def test_a_model_says_what_the_golden_numbers_say_on_every_instruction_set(
    name: str, isa: str, tiny_model: TinyPath
) -> None:
    model = load_model(tiny_model(name), isa)
    for case in golden_cases(name):
        assert_golden(score(model, case.token_ids), case)


@every_model
@pytest.mark.parametrize("chunk", [1, 3])
def test_a_prompt_in_chunks_gives_the_same_bits_as_in_one_piece(name: str, chunk: int, tiny_model: TinyPath) -> None:
    model = load_model(tiny_model(name))
    for case in golden_cases(name):
        in_chunks = score(model, case.token_ids, chunk)
        np.testing.assert_array_equal(in_chunks, score(model, case.token_ids))
        assert_golden(in_chunks, case)


@every_model
def test_a_sequence_after_a_stopped_one_is_not_touched_by_it(name: str, tiny_model: TinyPath) -> None:
    model = load_model(tiny_model(name))
    cache, sequence = KVCache(model.cache_shapes, 128), CachedSequence()
    stopped, _, case = golden_cases(name)
    logits(model, cache, sequence, [*stopped.prompt, *range(80)], chunk=17)  # leaves more than one page behind
    cache.release(sequence)
    beginning, rest = case.token_ids[:10], case.token_ids[10:]
    parts = [logits(model, cache, sequence, part, chunk=10) for part in (beginning, rest)]
    assert_golden(log_softmax(np.concatenate(parts)), case)
