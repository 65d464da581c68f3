"""What a smaller cache costs, and what it must not change."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from scoring import load_model

from ktdesk_engine.config import CACHE_TYPES, CacheType, Compute, EngineConfig
from ktdesk_engine.engine import Engine
from ktdesk_engine.errors import ConfigError
from ktdesk_engine.memory import decide_cache_type, decide_context

TinyModel = Callable[[str], Path]
TOKENS = np.random.default_rng(0).integers(0, 250, 300).tolist()

# Of log-probabilities against a float32 cache, about three times what was measured on these models without
# experts, whose choice a small error can flip.
LARGEST_ERRORS: dict[CacheType, float] = {"f16": 0.004, "bf16": 0.025, "q8_0": 0.1}


def scores(path: Path, config: EngineConfig) -> np.ndarray:
    with Engine.load(path, config) as engine:
        return engine.score(TOKENS)


@pytest.mark.parametrize("name", ["llama-dense", "qwen2"])
def test_a_smaller_cache_costs_no_more_than_its_bits_say(name: str, tiny_model: TinyModel) -> None:
    exact = scores(tiny_model(name), EngineConfig(compute="float32"))
    errors = {
        cache_type: np.abs(
            scores(tiny_model(name), EngineConfig(compute="float32", cache_type=cache_type)) - exact
        ).max()
        for cache_type in LARGEST_ERRORS
    }
    assert all(0 < errors[cache_type] < largest for cache_type, largest in LARGEST_ERRORS.items()), errors
    assert errors["f16"] < errors["bf16"] < errors["q8_0"]


@pytest.mark.parametrize("name", ["qwen3moe", "deepseek2-lite"])
@pytest.mark.parametrize("cache_type", CACHE_TYPES)
def test_scores_have_the_same_bits_whatever_the_chunk_and_the_threads(
    name: str, cache_type: CacheType, tiny_model: TinyModel
) -> None:
    path = tiny_model(name)
    whole = scores(path, EngineConfig(compute="int8", cache_type=cache_type, num_threads=2))
    for chunk, threads in ((1, 2), (97, 3)):
        config = EngineConfig(compute="int8", cache_type=cache_type, prefill_chunk=chunk, num_threads=threads)
        np.testing.assert_array_equal(scores(path, config), whole)


@pytest.mark.parametrize(
    ("wish", "compute", "decided"),
    [
        (None, "float32", "float32"),
        (None, "int8", "f16"),
        (None, "auto", "f16"),
        ("q8_0", "int8", "q8_0"),
        ("bf16", "float32", "bf16"),
    ],
)
def test_a_wish_is_kept_and_the_exact_path_keeps_all_bits(
    wish: CacheType | None, compute: Compute, decided: CacheType
) -> None:
    assert decide_cache_type(wish, compute) == decided


def test_the_engine_says_what_it_decided(tiny_model: TinyModel) -> None:
    with Engine.load(tiny_model("llama-dense")) as engine:
        assert engine.config.cache_type == "f16"
    with Engine.load(tiny_model("llama-dense"), EngineConfig(compute="float32")) as engine:
        assert engine.config.cache_type == "float32"


def test_a_smaller_cache_holds_more_context(tiny_model: TinyModel) -> None:
    """A page of tiny llama-dense is 64 positions x 2 layers x 2 heads x (32 + 32) numbers."""
    model, available = load_model(tiny_model("llama-dense")), 4 * 64 * 1024
    contexts = [decide_context(None, model, available, cache_type) for cache_type in CACHE_TYPES]
    assert contexts == [64, 128, 128, 3 * 64]


def test_a_cache_type_that_there_is_none_of_is_refused() -> None:
    with pytest.raises(ConfigError, match="cache_type must be one of float32, f16, bf16, q8_0: 'q4_0'"):
        EngineConfig(cache_type="q4_0")  # type: ignore[arg-type]
