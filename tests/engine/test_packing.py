"""A packed model says what the exact one says, within rounding; loading tells how far it is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from gguf import GGMLQuantizationType
from gguf.quants import quantize
from model_variants import Tensors, write_variant

from ktdesk_engine import engine as engine_module
from ktdesk_engine import kernels
from ktdesk_engine.config import COMPUTES, Compute, EngineConfig, Request, SamplingConfig
from ktdesk_engine.engine import Engine
from ktdesk_engine.errors import ModelFileError, ResourceError
from ktdesk_engine.kernels import packing as packing_steps
from ktdesk_engine.load_progress import LoadMeter, LoadProgress
from ktdesk_engine.machine import PINNINGS

PROMPT = tuple(range(40, 70))


@pytest.fixture(scope="module")
def quantized_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    def quantize_all(tensors: Tensors) -> None:
        for name, values in tensors.items():
            if values.ndim > 1 and "ffn_gate_inp" not in name:
                tensors[name] = quantize(values, GGMLQuantizationType.Q8_0)

    return write_variant("llama-moe", tmp_path_factory.mktemp("quantized") / "model.gguf", change=quantize_all)


@pytest.mark.parametrize("isa", kernels.isas(with_variants=True))
def test_a_packed_model_is_close_to_the_exact_one(quantized_model: Path, isa: str) -> None:
    with Engine.load(quantized_model, EngineConfig(compute="float32")) as exact:
        want = exact.score(PROMPT)
    with Engine.load(quantized_model, EngineConfig(compute="int8", isa=isa)) as packed:
        assert packed.config.compute == "int8"
        got = packed.score(PROMPT)
    assert not np.array_equal(got, want)
    np.testing.assert_allclose(got, want, atol=5e-3)


@pytest.mark.parametrize("compute", ["int8", "bf16"])
def test_chunks_and_threads_do_not_change_a_packed_result(quantized_model: Path, compute: Compute) -> None:
    """With auto they may, by rounding: how many tokens an expert has decides which kernel takes them."""
    results = []
    for chunks in (EngineConfig(), EngineConfig(prefill_chunk=1), EngineConfig(prefill_chunk=7, num_threads=3)):
        with Engine.load(quantized_model, replace(chunks, compute=compute)) as engine:
            results.append(engine.score(PROMPT))
    np.testing.assert_array_equal(results[0], results[1])
    np.testing.assert_array_equal(results[0], results[2])


NODES = [(None, None), (2, None), (2, 2), (3, 5)]


@pytest.mark.parametrize("compute", ["int8", "float32"])
def test_nodes_and_pinning_do_not_change_a_result(quantized_model: Path, compute: Compute) -> None:
    configs = [EngineConfig(compute=compute, num_nodes=nodes, num_threads=threads) for nodes, threads in NODES]
    configs += [EngineConfig(compute=compute, pinning=pinning) for pinning in PINNINGS]
    results = []
    for config in configs:
        with Engine.load(quantized_model, config) as engine:
            request = Request(PROMPT, SamplingConfig(temperature=0), max_tokens=6, num_logprobs=2)
            results.append((engine.score(PROMPT), [(e.token_ids, e.logprobs) for e in engine.stream(request)]))
    for scores, answer in results[1:]:
        np.testing.assert_array_equal(scores, results[0][0])
        assert answer == results[0][1]


def test_loading_tells_how_far_it_is_and_can_be_cancelled(quantized_model: Path) -> None:
    seen: list[LoadProgress] = []
    Engine.load(quantized_model, progress=seen.append).close()
    assert [state.done_bytes for state in seen] == sorted({state.done_bytes for state in seen})
    assert seen[-1].done_bytes == seen[-1].total_bytes > 0
    assert list(dict.fromkeys(state.stage for state in seen)) == ["checking", "packing"]

    def cancel(_: LoadProgress) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Engine.load(quantized_model, progress=cancel)


def test_a_model_larger_than_memory_is_refused_before_it_is_read(
    quantized_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_module, "available_memory_bytes", lambda: 100_000)
    with pytest.raises(ResourceError, match=r"GiB in memory.*float32"):
        Engine.load(quantized_model, progress=lambda _: pytest.fail("it was read"))


def test_the_file_can_be_read_again_after_its_pages_were_dropped(quantized_model: Path) -> None:
    with Engine.load(quantized_model) as engine:
        before = np.array(engine.file.data("blk.0.ffn_gate_exps.weight"))
        engine.file.drop(engine.file.data("blk.0.ffn_gate_exps.weight"))
        np.testing.assert_array_equal(engine.file.data("blk.0.ffn_gate_exps.weight"), before)


def test_exact_is_the_word_for_float32(tiny_model: Callable[[str], Path]) -> None:
    """With int8 float weights are computed exactly too, as nothing is on tiles, if the cache rounds nothing."""
    request = Request(PROMPT, SamplingConfig(temperature=0), max_tokens=3)
    with Engine.load(tiny_model("llama-dense"), EngineConfig(compute="int8", cache_type="float32")) as unrounded:
        with Engine.load(tiny_model("llama-dense"), EngineConfig(compute="float32")) as exact:
            np.testing.assert_array_equal(unrounded.score(PROMPT), exact.score(PROMPT))
        assert [event.token_ids for event in unrounded.stream(request)]


def test_the_time_left_is_told_at_the_pace_of_the_last_moments() -> None:
    """10 bytes a second at first, from memory as it were, then 1 byte a second."""
    seen: list[LoadProgress] = []
    now = 0.0
    meter = LoadMeter(1000, seen.append, clock=lambda: now)
    for now in (0.5, 1.0, 2.0):
        meter.advance("packing", 10 if now >= 1 else 5)
    assert [state.bytes_per_second for state in seen] == [None, 15.0, 12.5]
    for _ in range(10):
        now += 1
        meter.advance("packing", 1)
    assert seen[-1].bytes_per_second == 1
    assert seen[-1].remaining_seconds == 1000 - 35


@pytest.mark.parametrize("compute", COMPUTES)
@pytest.mark.parametrize("experts", [0, 5])
def test_a_damaged_scale_is_refused_at_loading_and_its_place_named(
    compute: Compute, experts: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In steps of a matrix, or of a few rows: the place is the tensor's, not the step's."""
    name = "blk.1.ffn_up_exps.weight"

    def damage(tensors: Tensors) -> None:
        for weight_name, values in tensors.items():
            if values.ndim > 1 and "ffn_gate_inp" not in weight_name:
                tensors[weight_name] = quantize(values, GGMLQuantizationType.Q8_0)
        blocks = tensors[name].reshape(tensors[name].shape[0], tensors[name].shape[1], -1, 34)
        blocks[1, 20, 1, :2] = np.array([np.inf], np.float16).view(np.uint8)

    path = write_variant("llama-moe", tmp_path / "model.gguf", change=damage)
    monkeypatch.setattr(packing_steps, "STEP_BYTES", 2000)
    with pytest.raises(ModelFileError) as caught:
        Engine.load(path, EngineConfig(compute=compute))
    assert f"model.gguf: tensor '{name}' has numbers that are not finite" in str(caught.value)
    assert "first in block 1 of row 20 of expert 1" in str(caught.value)


@pytest.mark.parametrize(
    ("name", "index", "place"),
    [
        ("output_norm.weight", (3,), "value 3"),
        ("blk.0.attn_q.weight", (5, 7), "value 7 of row 5"),
        ("blk.0.ffn_gate_inp.weight", (1, 2), "value 2 of row 1"),
        ("blk.0.ffn_down_exps.weight", (2, 5, 7), "value 7 of row 5 of expert 2"),
    ],
)
@pytest.mark.parametrize("compute", ["int8", "float32"])
def test_a_float_that_is_no_number_is_refused_at_loading(
    name: str, index: tuple[int, ...], place: str, compute: Compute, tmp_path: Path
) -> None:
    def damage(tensors: Tensors) -> None:
        tensors[name][index] = np.nan

    path = write_variant("llama-moe", tmp_path / "model.gguf", change=damage)
    with pytest.raises(ModelFileError, match=rf"tensor '{name}' has numbers that are not finite, first in {place}:"):
        Engine.load(path, EngineConfig(compute=compute))


@pytest.mark.parametrize("compute", ["int8", "bf16"])
def test_loading_in_small_steps_is_loading_at_once(
    quantized_model: Path, compute: Compute, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = EngineConfig(compute=compute)  # with auto, each load measures anew what goes on tiles
    with Engine.load(quantized_model, config) as engine:
        want = engine.score(PROMPT)
    monkeypatch.setattr(packing_steps, "STEP_BYTES", 1000)
    steps: list[LoadProgress] = []
    with Engine.load(quantized_model, config, steps.append) as engine:
        np.testing.assert_array_equal(engine.score(PROMPT), want)
    assert len(steps) > 100
