"""Models of which a host thread computes the dense part and some experts, against the CPU alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from tiny_models import TINY

from ktdesk_engine.backends.accelerator import HostExperts
from ktdesk_engine.backends.host_thread import HostSlots, HostThreadAccelerator
from ktdesk_engine.config import EngineConfig, Request, SamplingConfig
from ktdesk_engine.engine import Engine
from ktdesk_engine.errors import AcceleratorError, AcceleratorMemoryError, ConfigError
from ktdesk_engine.kernels.programs import Program
from ktdesk_engine.kv_cache import CachedSequence
from ktdesk_engine.placement_rules import Rule

TinyPath = Callable[[str], Path]

MIXTURES = [name for name, model in TINY.items() if model.experts is not None]
PROMPT = [*range(40, 70), 1, 2]


def config(**settings: object) -> EngineConfig:
    return EngineConfig(**{"context": 192, "num_sequences": 2, "num_threads": 1, "compute": "float32", **settings})  # type: ignore[arg-type]


def hybrid(**settings: object) -> EngineConfig:
    return config(**{"accelerator": "host-thread", **settings})


def decoded(engine: Engine, num_tokens: int = 6) -> list[np.ndarray]:
    """Logits of steps that two sequences take together, the same tokens whatever the logits are."""
    sequences = [CachedSequence(), CachedSequence()]
    rows = [engine.runner.prefill(sequence, ids) for sequence, ids in zip(sequences, (PROMPT[:9], PROMPT), strict=True)]
    rows += [engine.runner.decode(sequences, [3 * step, 7]).copy() for step in range(num_tokens)]
    for sequence in sequences:
        engine.runner.release(sequence)
    return rows


def assert_close(got: Sequence[np.ndarray], want: Sequence[np.ndarray], tolerance: float = 2e-5) -> None:
    """To what the order of a sum changes."""
    for one, other in zip(got, want, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=tolerance * np.abs(other).max())


@pytest.mark.parametrize("name", MIXTURES)
def test_hybrid_is_the_cpu_alone_within_rounding(name: str, tiny_model: TinyPath) -> None:
    with Engine.load(tiny_model(name), config()) as engine:
        want = decoded(engine)
    for num_experts in (0, 7, None):
        with Engine.load(tiny_model(name), hybrid(accelerator_experts=num_experts)) as engine:
            assert_close(decoded(engine), want)


def test_a_model_without_experts_runs_there_as_well(tiny_model: TinyPath) -> None:
    with Engine.load(tiny_model("llama-dense"), config()) as engine:
        want = decoded(engine)
    with Engine.load(tiny_model("llama-dense"), hybrid()) as engine:
        assert_close(decoded(engine), want)


@pytest.mark.parametrize("name", ["deepseek2-v3", "gpt-oss"])
def test_a_device_that_computes_nothing_while_it_records_is_replayed(
    name: str, tiny_model: TinyPath, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a CUDA graph does: what was computed in the recording does not count."""
    with Engine.load(tiny_model(name), config()) as engine:
        want = decoded(engine)
    monkeypatch.setattr(Program, "computes_while_recording", False)
    with Engine.load(tiny_model(name), hybrid(accelerator_experts=5)) as engine:
        assert_close(decoded(engine), want)


@pytest.mark.parametrize("name", ["deepseek2-v3", "gpt-oss"])
def test_a_recorded_hybrid_step_is_the_eager_one(name: str, tiny_model: TinyPath) -> None:
    with Engine.load(tiny_model(name), hybrid(accelerator_experts=5, program=False)) as engine:
        want = decoded(engine)
    with Engine.load(tiny_model(name), hybrid(accelerator_experts=5)) as engine:
        for one, other in zip(decoded(engine), want, strict=True):
            np.testing.assert_array_equal(one, other)


def test_packed_weights_give_the_same_too(tiny_model: TinyPath, tmp_path: Path) -> None:
    from model_variants import in_types, write_variant

    from ktdesk_engine.quants.formats import WeightType

    path = write_variant("deepseek2-v3", tmp_path / "q8.gguf", change=in_types(lambda index: WeightType.Q8_0))
    with Engine.load(path, config(compute="int8")) as engine:
        want = decoded(engine)
    with Engine.load(path, hybrid(compute="int8", accelerator_experts=20)) as engine:
        assert_close(decoded(engine), want, tolerance=3e-4)  # activations of 15 bits round differently then


def test_experts_that_move_between_tokens_change_nothing(tiny_model: TinyPath) -> None:
    with Engine.load(tiny_model("qwen3moe"), config()) as engine:
        want = decoded(engine, 80)
    with Engine.load(tiny_model("qwen3moe"), hybrid(accelerator_experts=12)) as engine:
        before = engine.experts.resident_mask
        assert_close(decoded(engine, 80), want)
        after = engine.experts.resident_mask
    assert before is not None
    assert after is not None
    assert before.sum() == after.sum() == 12
    assert (before != after).any()


def test_without_time_to_move_experts_stay(tiny_model: TinyPath) -> None:
    with Engine.load(tiny_model("qwen3moe"), hybrid(accelerator_experts=12, move_ms=0)) as engine:
        before = engine.experts.resident_mask
        decoded(engine, 80)
        np.testing.assert_array_equal(engine.experts.resident_mask, before)


@pytest.mark.parametrize("accelerator", [None, "host-thread"])
def test_use_is_counted_in_prompts_and_in_recorded_steps(accelerator: str | None, tiny_model: TinyPath) -> None:
    with Engine.load(tiny_model("qwen3moe"), config(accelerator=accelerator)) as engine:
        decoded(engine, 4)
        assert engine.experts.use is not None
        rates = engine.experts.use.rates()
        np.testing.assert_array_equal(rates.sum(axis=1), 4 * (9 + len(PROMPT) + 2 * 4))
        assert engine.experts.use.counts.sum() == 0


def test_use_taken_back_decides_who_is_resident(tiny_model: TinyPath) -> None:
    with Engine.load(tiny_model("qwen3moe"), hybrid(accelerator_experts=3)) as engine:
        use = np.zeros((3, 16))
        use[0, 5], use[2, 1], use[2, 15] = 3, 2, 1
        assert engine.experts.use is not None
        engine.experts.use.restore(use)
        engine.experts.place()
        assert engine.experts.resident_mask is not None
        np.testing.assert_array_equal(np.argwhere(engine.experts.resident_mask), [[0, 5], [2, 1], [2, 15]])
        with pytest.raises(ConfigError, match="must be 3 x 16 numbers"):
            engine.experts.use.restore(np.zeros((3, 8)))


def test_experts_are_given_more_memory_and_less_between_steps(tiny_model: TinyPath) -> None:
    with Engine.load(tiny_model("qwen3moe"), config()) as engine:
        want = decoded(engine)
    with Engine.load(tiny_model("qwen3moe"), hybrid(accelerator_experts=12)) as engine:
        for num_bytes, num_resident in ((5 * 98_304, 5), (0, 0), (20 * 98_304 + 1, 20)):
            decoded(engine, 1)
            engine.resize_experts(num_bytes)
            assert engine.experts.num_resident == num_resident
            assert_close(decoded(engine), want)
    with Engine.load(tiny_model("qwen3moe"), config()) as engine, pytest.raises(ConfigError, match="no accelerator"):
        engine.resize_experts(1)


def test_memory_that_others_took_before_loading_costs_experts_and_not_the_model(
    tiny_model: TinyPath, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Between a look at what is free and taking it."""
    honest = HostThreadAccelerator.expert_slots

    def refuse_many(device: HostThreadAccelerator, layers: Sequence[HostExperts], num_slots: int) -> HostSlots:
        if num_slots > 10:
            raise AcceleratorMemoryError("others were faster")
        return honest(device, layers, num_slots)

    monkeypatch.setattr(HostThreadAccelerator, "expert_slots", refuse_many)
    with Engine.load(tiny_model("qwen3moe"), hybrid(accelerator_experts=32)) as engine:
        assert engine.experts.num_resident == 8
    assert "others were faster" in caplog.text


@pytest.mark.parametrize("num_threads", [1, 2])
def test_all_threads_of_the_pool_may_wait_for_the_accelerator(num_threads: int, tiny_model: TinyPath) -> None:
    with Engine.load(tiny_model("qwen3moe"), config()) as engine:
        want = decoded(engine)
    with Engine.load(tiny_model("qwen3moe"), hybrid(accelerator_experts=9, num_threads=num_threads)) as engine:
        assert_close(decoded(engine), want)


@pytest.mark.parametrize("program", [True, False])
def test_out_of_memory_in_mid_run_moves_experts_and_the_request_goes_on(
    program: bool, tiny_model: TinyPath, caplog: pytest.LogCaptureFixture
) -> None:
    request = Request(tuple(PROMPT), SamplingConfig(temperature=0), max_tokens=12)
    with Engine.load(tiny_model("qwen3moe"), config()) as engine:
        want = [event.token_ids for event in engine.stream(request)]
    with Engine.load(
        tiny_model("qwen3moe"), hybrid(accelerator_experts=20, program=program, stream_prompts=False)
    ) as engine:
        stream = engine.stream(request)
        got = [next(stream).token_ids, next(stream).token_ids]
        device = engine.accelerator
        assert device is not None
        streams_memory_error(device)
        got += [event.token_ids for event in stream]
        assert engine.experts.num_resident == 10
    assert got == want
    assert "out of memory: experts move to the CPU, 10 stay" in caplog.text


def streams_memory_error(device: object) -> None:
    from ktdesk_engine.kernels import _kernels

    _kernels.fail_memory(device.pool)  # type: ignore[attr-defined]


@pytest.mark.parametrize("program", [True, False])
def test_a_lost_device_ends_the_request_with_one_clear_line(program: bool, tiny_model: TinyPath) -> None:
    request = Request(tuple(PROMPT), SamplingConfig(temperature=0), max_tokens=12)
    with Engine.load(tiny_model("qwen3moe"), hybrid(accelerator_experts=20, program=program)) as engine:
        want = [event.token_ids for event in engine.stream(request)]
        stream = engine.stream(request)
        next(stream)
        next(stream)
        assert engine.accelerator is not None
        engine.accelerator.fail("the device is lost")  # type: ignore[attr-defined]
        with pytest.raises(AcceleratorError, match=r"^the accelerator \(a thread of the host\) failed: the device is"):
            list(stream)
        assert [event.token_ids for event in engine.stream(request)] == want  # it came back


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"accelerator_experts": 1000}, r"accelerator_experts 1000: there is room for \d+ experts of 98,304 bytes"),
        ({"accelerator_bytes": 1000}, "keys and values take"),
        ({"accelerator": None, "accelerator_bytes": 1000}, "accelerator_bytes is for an accelerator, and none is"),
        ({"accelerator": "tpu"}, "accelerator must be one of cuda, host-thread: 'tpu'"),
        ({"placement": "best"}, "placement must be one of uniform, frequency, front-loading, random: 'best'"),
        ({"defer": 3}, "defer 3: this model uses 4 experts for a token and 2 stay immediate, so at most 2"),
        ({"defer": -1}, "defer must be auto, or an integer of at least 0: -1"),
    ],
)
def test_what_the_accelerator_cannot_do_is_refused(
    settings: dict[str, object], message: str, tiny_model: TinyPath
) -> None:
    with pytest.raises((ConfigError, AcceleratorError), match=message):
        Engine.load(tiny_model("qwen3moe"), hybrid(**{"accelerator_bytes": 8_000_000, **settings}))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"accelerator_experts": 4}, "accelerator_experts 4: this model has no experts"),
        ({"placement_rules": (Rule("_exps", "cpu", "rules.yaml:1"),)}, "rules.yaml:1: match '_exps' finds no tensor"),
        ({"placement_rules": (Rule("attn_q", "cpu"),)}, "would stay on the CPU, but only routed experts"),
    ],
)
def test_what_only_experts_can_have_is_refused_where_there_are_none(
    settings: dict[str, object], message: str, tiny_model: TinyPath
) -> None:
    with pytest.raises(ConfigError, match=message):
        Engine.load(tiny_model("llama-dense"), hybrid(**settings))


def test_a_model_that_is_not_loaded_leaves_no_thread_behind(
    tiny_model: TinyPath, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed, honest = [], HostThreadAccelerator.close

    def close(device: HostThreadAccelerator) -> None:
        closed.append(device)
        honest(device)

    monkeypatch.setattr(HostThreadAccelerator, "close", close)
    with pytest.raises(ConfigError, match="accelerator_experts 1000"):
        Engine.load(tiny_model("qwen3moe"), hybrid(accelerator_experts=1000, accelerator_bytes=8_000_000))
    assert len(closed) == 1


def test_a_failure_in_a_step_that_was_broken_off_or_after_it_spoils_no_answer(tiny_model: TinyPath) -> None:
    with Engine.load(tiny_model("qwen3moe"), config()) as engine:
        want = decoded(engine)
    with Engine.load(tiny_model("qwen3moe"), hybrid(accelerator_experts=12)) as engine:
        device, calls = engine.accelerator, []
        assert isinstance(device, HostThreadAccelerator)
        honest = device.hand_over

        def interrupted(*arguments: object) -> None:
            calls.append(arguments)
            if len(calls) == 2:
                device.fail("it failed while nobody waited")
                raise KeyboardInterrupt
            honest(*arguments)  # type: ignore[arg-type]

        device.hand_over = interrupted  # type: ignore[method-assign]
        with pytest.raises(KeyboardInterrupt):
            decoded(engine)
        assert_close(decoded(engine), want)
        device.fail("it failed between two steps")
        with pytest.raises(AcceleratorError, match="between two steps"):
            decoded(engine)
        assert_close(decoded(engine), want)


@pytest.mark.parametrize("after_layers", [0, 1, 2])
def test_a_prompt_that_is_left_between_layers_leaves_nothing_under_way(after_layers: int, tiny_model: TinyPath) -> None:
    with Engine.load(tiny_model("qwen3moe"), config()) as engine:
        want = decoded(engine)
    with Engine.load(tiny_model("qwen3moe"), hybrid(accelerator_experts=12)) as engine:
        device, num_layers = engine.accelerator, 0
        assert isinstance(device, HostThreadAccelerator)

        def before_layer() -> None:
            nonlocal num_layers
            num_layers += 1
            if num_layers > after_layers:
                raise TimeoutError

        left = CachedSequence()
        with pytest.raises(TimeoutError):
            engine.runner.prefill(left, list(range(40)), before_layer)
        assert not engine.experts._hybrid._is_open  # type: ignore[union-attr]
        engine.runner.release(left)
        assert_close(decoded(engine), want)


@pytest.mark.parametrize("recorded", [True, False])
def test_where_the_device_fails_while_experts_are_placed_none_lies_there(recorded: bool, tiny_model: TinyPath) -> None:
    with Engine.load(tiny_model("qwen3moe"), config()) as engine:
        want = decoded(engine)
    with Engine.load(tiny_model("qwen3moe"), hybrid(accelerator_experts=12, program=recorded)) as engine:
        decoded(engine, 2)
        device, use = engine.accelerator, engine.experts.use
        assert isinstance(device, HostThreadAccelerator)
        assert use is not None
        device.fail("a copy went astray")
        with pytest.raises(AcceleratorError, match="a copy went astray"):
            engine.restore_use(use.rates())
        assert engine.experts.num_resident == 0
        assert_close(decoded(engine), want)
