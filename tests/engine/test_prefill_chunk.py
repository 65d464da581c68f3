"""How much of a prompt is computed together: enough that experts see some of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from ktdesk_engine import kernels, prefill_chunk
from ktdesk_engine.config import EngineConfig
from ktdesk_engine.engine import Engine
from ktdesk_engine.errors import ConfigError
from ktdesk_engine.kv_cache import CachedSequence
from ktdesk_engine.prefill_chunk import ExpertSizes, decide_prefill_chunk

PROMPT = [token % 200 for token in range(150)]


GB = 10**9


@pytest.mark.parametrize(
    ("num_experts", "num_used", "chunk"),
    [
        (8, 2, 512),  # 128 tokens of each expert
        (32, 4, 1024),
        (64, 6, 2048),
        (128, 8, 2048),
        (512, 1, 2048),  # however many there are
    ],
)
def test_an_expert_sees_many_tokens_of_a_chunk(num_experts: int, num_used: int, chunk: int) -> None:
    experts = ExpertSizes(num_experts, num_used, hidden=2048, width=768)
    assert decide_prefill_chunk(None, experts, 100 * GB) == chunk
    assert decide_prefill_chunk(7, experts, 100 * GB) == 7


def test_without_experts_or_with_an_accelerator_it_is_the_smallest() -> None:
    assert decide_prefill_chunk(None, None, 100 * GB) == 512


@pytest.mark.parametrize(("left_bytes", "chunk"), [(-GB, 512), (2 * GB, 512), (3 * GB, 1024), (5 * GB, 2048)])
def test_a_chunk_takes_a_tenth_of_what_weights_leave(left_bytes: int, chunk: int) -> None:
    experts = ExpertSizes(128, 8, hidden=2048, width=768)
    assert experts.token_bytes == 6 * (4 * 2048 + 8 * (2 * 768 + 2048))
    assert decide_prefill_chunk(None, experts, left_bytes) == chunk


def test_an_engine_says_what_it_decided(tiny_model: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch) -> None:
    path = tiny_model("qwen3moe")  # 16 experts of which 4 are used
    has_tiles = "amx" in kernels.isas()
    for wanted_rows, chunk in ((1, 512), (200, 1024), (10_000, 2048)):
        monkeypatch.setattr(prefill_chunk, "EXPERT_ROWS", wanted_rows)
        for compute, decided in (("auto", chunk if has_tiles else 512), ("float32", 512)):
            with Engine.load(path, EngineConfig(compute=compute, num_threads=1)) as engine:
                assert (engine.prefill_chunk, engine.config.prefill_chunk) == (decided, decided)


@pytest.mark.parametrize("name", ["qwen3moe", "deepseek2-lite", "gpt-oss"])
def test_the_size_of_a_chunk_changes_results_by_rounding_alone(name: str, tiny_model: Callable[[str], Path]) -> None:
    logits = []
    for size in (16, 64, 1024):
        with Engine.load(
            tiny_model(name), EngineConfig(compute="float32", num_threads=1, prefill_chunk=size)
        ) as engine:
            logits.append(engine.runner.prefill(CachedSequence(), PROMPT).copy())
    np.testing.assert_allclose(logits[1], logits[0], rtol=0, atol=1e-4)
    np.testing.assert_allclose(logits[2], logits[0], rtol=0, atol=1e-4)


def test_a_chunk_of_no_token_is_refused() -> None:
    with pytest.raises(ConfigError, match="prefill_chunk"):
        EngineConfig(prefill_chunk=0)
