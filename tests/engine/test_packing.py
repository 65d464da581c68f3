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
from ktdesk_engine.config import Compute, EngineConfig, Request, SamplingConfig
from ktdesk_engine.engine import Engine
from ktdesk_engine.errors import ResourceError
from ktdesk_engine.machine import PINNINGS
from ktdesk_engine.packing import LoadProgress

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
    """A model of float weights is computed exactly whatever was asked for, as long as its cache rounds nothing."""
    request = Request(PROMPT, SamplingConfig(temperature=0), max_tokens=3)
    with Engine.load(tiny_model("llama-dense"), EngineConfig(cache_type="float32")) as auto:
        with Engine.load(tiny_model("llama-dense"), EngineConfig(compute="float32")) as exact:
            np.testing.assert_array_equal(auto.score(PROMPT), exact.score(PROMPT))
        assert [event.token_ids for event in auto.stream(request)]
