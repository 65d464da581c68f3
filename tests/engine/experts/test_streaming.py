"""Long prompts whose experts pass through the accelerator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from ktdesk_engine.backends.accelerator import HostExperts
from ktdesk_engine.backends.host_thread import HostStage, HostThreadAccelerator
from ktdesk_engine.config import EngineConfig
from ktdesk_engine.engine import Engine
from ktdesk_engine.errors import AcceleratorError, AcceleratorMemoryError
from ktdesk_engine.experts.streaming import MIN_TOKENS, BreakEven
from ktdesk_engine.kv_cache import CachedSequence

TinyPath = Callable[[str], Path]
PROMPT = [(7 * i) % 250 for i in range(200)]


def test_both_ways_are_tried_once_and_then_the_faster_one_is_taken() -> None:
    found = BreakEven()
    assert not found.streams(512)
    found.took(False, 500, 1.0)
    assert found.streams(512)
    found.took(True, 512, 0.5)
    assert found.num_tokens == 250
    assert found.streams(250)
    assert not found.streams(249)


def test_short_prompts_are_neither_streamed_nor_measured() -> None:
    found = BreakEven()
    found.took(False, MIN_TOKENS - 1, 1.0)
    assert not found.streams(512)
    found.took(False, MIN_TOKENS, 1e3)
    assert not found.streams(MIN_TOKENS - 1)


def config(**settings: object) -> EngineConfig:
    base = {"context": 256, "num_threads": 1, "compute": "float32", "prefill_chunk": 64}
    return EngineConfig(**{**base, **settings})  # type: ignore[arg-type]


def prefilled(engine: Engine) -> np.ndarray:
    sequence = CachedSequence()
    try:
        return engine.runner.prefill(sequence, PROMPT).copy()
    finally:
        engine.runner.release(sequence)


@pytest.mark.parametrize("name", ["qwen3moe", "gpt-oss", "deepseek2-v3"])
def test_a_streamed_prompt_is_the_cpus_within_rounding(name: str, tiny_model: TinyPath) -> None:
    with Engine.load(tiny_model(name), config()) as engine:
        want = prefilled(engine)
    with Engine.load(tiny_model(name), config(accelerator="host-thread", accelerator_experts=3)) as engine:
        assert engine.experts.prompt_break_even is None
        for _ in range(2):
            np.testing.assert_allclose(prefilled(engine), want, rtol=0, atol=3e-5 * np.abs(want).max())
        assert engine.experts.prompt_break_even is not None
        assert engine.experts.use is not None
        counted = engine.experts.use.rates().sum(axis=1)
        assert (counted == 2 * len(PROMPT) * engine.model.moe_layers[0].rule.num_used).all()


def test_without_it_nothing_is_streamed(tiny_model: TinyPath) -> None:
    with Engine.load(tiny_model("qwen3moe"), config(accelerator="host-thread", stream_prompts=False)) as engine:
        prefilled(engine)
        assert engine.experts.prompt_break_even is None


def fail_in_the_second_piece(engine: Engine) -> None:
    device = engine.accelerator
    assert device is not None
    honest, calls = device.hand_over, []

    def failing(*arguments: object) -> None:
        calls.append(arguments)
        if len(calls) == 5:  # the second layer of the second piece, which is streamed
            device.fail("the device is lost")  # type: ignore[attr-defined]
        honest(*arguments)  # type: ignore[arg-type]

    device.hand_over = failing  # type: ignore[method-assign]


def test_a_failure_in_a_streamed_prompt_leaves_the_next_one_whole(tiny_model: TinyPath) -> None:
    with Engine.load(tiny_model("qwen3moe"), config()) as engine:
        want = prefilled(engine)
    with Engine.load(tiny_model("qwen3moe"), config(accelerator="host-thread", accelerator_experts=0)) as engine:
        fail_in_the_second_piece(engine)
        with pytest.raises(AcceleratorError, match="the device is lost"):
            prefilled(engine)
        np.testing.assert_allclose(prefilled(engine), want, rtol=0, atol=3e-5 * np.abs(want).max())


@pytest.mark.parametrize("number", [1, 2])
def test_areas_whose_memory_others_took_cost_that_way_alone(
    number: int, tiny_model: TinyPath, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """When the model is loaded, or when they are taken anew after a failure."""
    calls: list[HostStage | None] = []
    honest_stage = HostThreadAccelerator.expert_stage

    def full(device: HostThreadAccelerator, layers: Sequence[HostExperts]) -> HostStage:
        calls.append(None)
        if len(calls) == number:
            raise AcceleratorMemoryError("two layers' experts: others were faster")
        return honest_stage(device, layers)

    with Engine.load(tiny_model("qwen3moe"), config()) as engine:
        want = prefilled(engine)
    monkeypatch.setattr(HostThreadAccelerator, "expert_stage", full)
    with Engine.load(tiny_model("qwen3moe"), config(accelerator="host-thread", accelerator_experts=0)) as engine:
        if number == 2:
            fail_in_the_second_piece(engine)
            with pytest.raises(AcceleratorError, match="the device is lost"):
                prefilled(engine)
        np.testing.assert_allclose(prefilled(engine), want, rtol=0, atol=3e-5 * np.abs(want).max())
        assert engine.experts.prompt_break_even is None
    assert "others were faster; long prompts do not pass through the accelerator" in caplog.text
