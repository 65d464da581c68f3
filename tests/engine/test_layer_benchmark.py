"""Measuring one layer of random weights: the weights, and what is counted. No test asks how fast."""

from __future__ import annotations

import numpy as np
import pytest
from benchmarks import use_small_probes

from ktdesk_engine import kernels
from ktdesk_engine.benchmark.ceilings import Probes
from ktdesk_engine.benchmark.layer import SHAPES, LayerBench, LayerPlan, LayerShape
from ktdesk_engine.benchmark.random_weights import fitting_type, random_weight
from ktdesk_engine.errors import ConfigError, ResourceError
from ktdesk_engine.quants.formats import BLOCKS, WeightType, dequantize

GB = 1 << 30


def quiet(name: str, done: int, wanted: int) -> None:
    pass


@pytest.mark.parametrize("weight_type", list(WeightType), ids=lambda t: t.name)
def test_random_weights_of_every_type_are_plain_numbers(weight_type: WeightType) -> None:
    length = 2 * max(BLOCKS[weight_type].values, 32)
    weight = random_weight(weight_type, 2, 3, length, seed=1)
    values = dequantize(weight.blocks, weight.type)
    assert values.shape == (2, 3, length)
    assert np.isfinite(values).all()
    assert 0 < np.abs(values).max() < 100
    assert (np.abs(values[values != 0]) > np.finfo(np.float32).tiny).all()


def test_rows_that_are_no_whole_blocks_get_the_type_that_files_have_there() -> None:
    assert fitting_type(WeightType.Q4_K, 2048) is WeightType.Q4_K
    assert fitting_type(WeightType.Q4_K, 1408) is WeightType.Q5_0
    assert LayerPlan(SHAPES["deepseek-v2-lite"], WeightType.Q6_K).types == (WeightType.Q6_K, WeightType.Q8_0)
    with pytest.raises(ConfigError, match="1000"):
        LayerPlan(LayerShape(64, 1000, 4, 2), WeightType.Q4_0)


@pytest.mark.parametrize("compute", ["mixed", "float32"])
def test_a_layer_counts_the_experts_that_were_hit(compute: str, monkeypatch: pytest.MonkeyPatch) -> None:
    use_small_probes(monkeypatch)
    monkeypatch.setattr("ktdesk_engine.benchmark.layer.SAMPLE_SECONDS", 0.001)
    plan = LayerPlan(
        LayerShape(64, 32, 4, 2),
        WeightType.Q8_0,
        tokens=(1, 200),
        repeat=2,
        compute="float32" if compute == "float32" else "mixed",
        min_tile_rows=None if compute == "float32" else 100,
    )
    assert plan.file_bytes == 4 * 3 * 64 * 32 // 32 * 34
    pool = kernels.worker_pool(2)
    bench = LayerBench(pool, plan, cache_bytes=3 * plan.file_bytes, available_bytes=GB)
    assert len(bench._layers) == 12  # four times the caches
    few = "float32" if compute == "float32" else "int8"
    one, many = bench.rows(Probes(pool, bench.peaks), quiet)
    has_many_on_tiles = pool.has_tiles and compute == "mixed"
    assert (one.work.peak, many.work.peak) == (few, "int8 tiles" if has_many_on_tiles else few)
    assert one.step_weight_bytes.median == 2 * bench.layer_bytes / 4
    assert many.step_weight_bytes.median == bench.layer_bytes  # 200 tokens miss no expert of four
    assert many.work.num_tokens == 200 * many.work.num_steps
    assert many.work.operations == 2 * many.work.num_tokens * 2 * 3 * 64 * 32


def test_a_layer_that_does_not_fit_is_refused() -> None:
    plan = LayerPlan(SHAPES["qwen3-30b-a3b"], WeightType.Q4_K)
    with pytest.raises(ResourceError, match="GiB"):
        LayerBench(kernels.worker_pool(1), plan, cache_bytes=0, available_bytes=GB // 2)


@pytest.mark.parametrize(
    ("shape", "tokens", "repeat"),
    [((64, 32, 4, 5), (1,), 1), ((0, 32, 4, 2), (1,), 1), ((64, 32, 4, 2), (), 1), ((64, 32, 4, 2), (1,), 0)],
)
def test_a_layer_that_makes_no_sense_is_refused(
    shape: tuple[int, int, int, int], tokens: tuple[int, ...], repeat: int
) -> None:
    with pytest.raises(ConfigError):
        LayerPlan(LayerShape(*shape), WeightType.Q8_0, tokens, repeat)
