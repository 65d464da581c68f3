"""From where on tiles are used: by a measurement, or by a number."""

from __future__ import annotations

import numpy as np
import pytest

from ktdesk_engine import calibration, kernels
from ktdesk_engine.benchmark.random_weights import random_weight
from ktdesk_engine.calibration import find_min_tile_rows, typical_experts
from ktdesk_engine.compute import PRODUCTS, decide_compute, fixed_min_tile_rows
from ktdesk_engine.config import EngineConfig
from ktdesk_engine.errors import ConfigError
from ktdesk_engine.kernels import ExpertMlp, ExpertWeight, Weight, WorkerPool
from ktdesk_engine.kernels.pools import NEVER
from ktdesk_engine.quants.formats import WeightType, row_bytes

needs_tiles = pytest.mark.skipif("amx" not in kernels.isas(), reason="this machine has no tiles")


def small_experts(E: int) -> ExpertMlp:
    gate, up, down = (ExpertWeight(random_weight(WeightType.F32, E, 32, 32, seed=seed)) for seed in (1, 2, 3))
    return ExpertMlp(gate, up, down)


def faster_at(*counts: int) -> object:
    return lambda pool, mlp, num_rows: num_rows in counts


@pytest.mark.parametrize("isa", [isa for isa in kernels.isas() if isa != "amx"])
def test_without_tiles_there_is_nothing_to_measure(isa: str) -> None:
    assert find_min_tile_rows(kernels.worker_pool(1, isa), small_experts(1)) == NEVER


@needs_tiles
@pytest.mark.parametrize(
    ("winning", "wanted"),
    [
        (calibration.ROW_COUNTS, 1),
        ((6, 8, 10, 12, 16, 24, 32), 6),
        ((2, 8, 10, 12, 16, 24, 32), 8),  # one win below is noise
        ((32,), 32),
        ((1, 2, 3), NEVER),
        ((), NEVER),
    ],
)
def test_tiles_are_used_from_where_they_win_twice(
    winning: tuple[int, ...], wanted: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calibration, "_are_tiles_faster", faster_at(*winning))
    monkeypatch.setattr(calibration, "MAX_SECONDS", 1e9)
    assert find_min_tile_rows(kernels.worker_pool(1, "amx"), small_experts(1)) == wanted


@needs_tiles
@pytest.mark.parametrize("num_experts", [1, 6])
def test_a_measurement_ends_with_one_of_the_counts_and_leaves_the_pool_as_it_was(num_experts: int) -> None:
    pool = kernels.worker_pool(2, "amx")
    pool.min_tile_rows = 7
    assert find_min_tile_rows(pool, small_experts(num_experts)) in (*calibration.ROW_COUNTS, NEVER)
    assert pool.min_tile_rows == 7


def test_the_layer_that_is_measured_is_one_with_the_most_experts() -> None:
    class Layer:
        def __init__(self, experts: ExpertMlp) -> None:
            self.experts = experts

    shared, routed = Layer(small_experts(1)), Layer(small_experts(3))
    assert typical_experts([shared, object(), routed, shared]) is routed.experts
    assert typical_experts([object()]) is None


@pytest.mark.parametrize("isa", kernels.isas())
def test_only_mixed_with_tiles_leaves_something_to_measure(isa: str) -> None:
    pool = kernels.worker_pool(1, isa)
    fixed = {compute: fixed_min_tile_rows(compute, None, pool) for compute in ("mixed", "int8", "bf16", "float32")}
    if pool.has_tiles:
        assert fixed == {"mixed": None, "int8": NEVER, "bf16": 1, "float32": NEVER}
        assert fixed_min_tile_rows("mixed", 9, pool) == 9
    else:
        assert set(fixed.values()) == {NEVER}
        assert decide_compute("mixed", pool) == decide_compute("bf16", pool) == "int8"
    assert decide_compute("auto", pool) == ("mixed" if pool.has_tiles else "int8")
    assert decide_compute("auto", pool, deterministic=True) == "int8"
    assert decide_compute("float32", pool) == "float32"


def test_a_number_of_rows_without_a_choice_is_refused() -> None:
    with pytest.raises(ConfigError, match="min_tile_rows"):
        EngineConfig(compute="int8", min_tile_rows=4)
    with pytest.raises(ConfigError, match="min_tile_rows"):
        EngineConfig(min_tile_rows=0)


def test_the_table_of_products_has_every_type_and_says_what_the_kernels_do() -> None:
    assert set(PRODUCTS) == set(WeightType)
    for weight_type, products in PRODUCTS.items():
        weight = Weight(weight_type, np.zeros((1, row_bytes(weight_type, 256)), np.uint8))
        is_bytes = kernels.has_panels(weight) and weight_type not in (WeightType.F16, WeightType.BF16)
        assert (products.few == "int8") == is_bytes


@needs_tiles
def test_a_pool_has_no_tiles_in_use_until_it_is_told() -> None:
    pool: WorkerPool = kernels.worker_pool(1, "amx")
    assert pool.min_tile_rows == NEVER
