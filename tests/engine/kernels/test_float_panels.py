"""Panels of 16-bit floats: the file's numbers, multiplied with float32 activations."""

from __future__ import annotations

import numpy as np
import pytest
from random_blocks import random_weight

from ktdesk_engine import kernels
from ktdesk_engine.kernels import ExpertMlp, ExpertWeight, Weight, reference
from ktdesk_engine.quants.formats import WeightType, dequantize

ISAS = kernels.isas(with_variants=True)
HALF_TYPES = [WeightType.F16, WeightType.BF16]


def half_weight(weight_type: WeightType, *shape: int, seed: int = 0) -> Weight:
    return random_weight(np.random.default_rng(seed), weight_type, shape, 1 / 16)


def random_floats(*shape: int, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def rounding_bound(weight: Weight, x: np.ndarray) -> np.ndarray:
    """(T, rows): each of the two sums rounds at every step, relative to what was added up so far."""
    magnitudes = np.abs(x.astype(np.float64)) @ np.abs(dequantize(weight.blocks, weight.type).astype(np.float64)).T
    return weight.row_length / 2 * 2.0**-24 * magnitudes


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("weight_type", HALF_TYPES, ids=lambda t: t.name)
@pytest.mark.parametrize("length", [32, 96, 1408])
@pytest.mark.parametrize(("rows", "tokens"), [(1, 1), (15, 2), (16, 3), (17, 5), (33, 40)])
def test_a_product_is_the_reference_within_the_rounding_of_sums(
    isa: str, weight_type: WeightType, length: int, rows: int, tokens: int
) -> None:
    weight, x, bias = half_weight(weight_type, rows, length), random_floats(tokens, length), random_floats(rows)
    pool = kernels.worker_pool(2, isa)
    got = kernels.linear(pool, kernels.pack(pool, weight), x, bias)
    error = np.abs(got - reference.linear(weight, x, bias))
    assert (error <= rounding_bound(weight, x) + 2.0**-23 * np.abs(got)).all()


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("weight_type", HALF_TYPES, ids=lambda t: t.name)
@pytest.mark.parametrize("rows", [1, 16, 20])
def test_a_panel_holds_each_value_of_sixteen_rows_side_by_side(isa: str, weight_type: WeightType, rows: int) -> None:
    length, num_panels = 64, -(-rows // 16)
    weight = half_weight(weight_type, rows, length)
    packed = kernels.pack(kernels.worker_pool(2, isa), weight)
    want = np.zeros((num_panels * 16, length), np.uint16)
    want[:rows] = weight.blocks.view(np.uint16)
    panels = packed.blocks.view(np.uint16).reshape(num_panels, length, 16)
    np.testing.assert_array_equal(panels, want.reshape(num_panels, 16, length).transpose(0, 2, 1))


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("weight_type", HALF_TYPES, ids=lambda t: t.name)
def test_numbers_of_every_size_keep_their_value(isa: str, weight_type: WeightType) -> None:
    """All 65,536 bit patterns but those that are no number, subnormal ones among them."""
    patterns = np.arange(2**16, dtype=np.uint16)
    values = dequantize(patterns[:, None].view(np.uint8), weight_type)[:, 0]
    patterns = np.where(np.isfinite(values), patterns, 0)
    weight = Weight(weight_type, patterns.reshape(-1, 32).view(np.uint8))
    pool = kernels.worker_pool(2, isa)
    got = kernels.linear(pool, kernels.pack(pool, weight), np.eye(32, dtype=np.float32))
    np.testing.assert_array_equal(got.T, dequantize(weight.blocks, weight_type))


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("weight_type", HALF_TYPES, ids=lambda t: t.name)
def test_a_tokens_result_does_not_depend_on_its_neighbours(isa: str, weight_type: WeightType) -> None:
    weight, x = half_weight(weight_type, 40, 96), random_floats(31, 96)
    pool = kernels.worker_pool(2, isa)
    packed = kernels.pack(pool, weight)
    together = kernels.linear(pool, packed, x)
    for t in range(31):
        np.testing.assert_array_equal(together[t], kernels.linear(pool, packed, x[t : t + 1])[0])


@pytest.mark.parametrize("isa", ISAS)
def test_a_value_that_is_not_finite_makes_its_row_nan_and_no_other(isa: str) -> None:
    weight, x = half_weight(WeightType.BF16, 16, 64), random_floats(3, 64)
    x[1, 40] = np.nan
    pool = kernels.worker_pool(1, isa)
    got = kernels.linear(pool, kernels.pack(pool, weight), x)
    assert np.isfinite(got).all(axis=-1).tolist() == [True, False, True]


def test_rows_that_are_no_whole_groups_are_not_packed() -> None:
    assert not kernels.has_panels(half_weight(WeightType.F16, 16, 48))
    assert kernels.packed_bytes(half_weight(WeightType.F16, 16, 48)) == 0


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("down_type", [WeightType.BF16, WeightType.Q8_0], ids=lambda t: t.name)
@pytest.mark.parametrize("up_type", [WeightType.F16, WeightType.Q4_K], ids=lambda t: t.name)
def test_experts_may_mix_panels_of_floats_and_of_bytes(isa: str, up_type: WeightType, down_type: WeightType) -> None:
    experts, used, tokens, H, I = 5, 2, 17, 256, 96
    rng = np.random.default_rng(3)
    gate, up = half_weight(WeightType.BF16, experts, I, H), random_weight(rng, up_type, (experts, I, H), 1 / 16)
    down = random_weight(rng, down_type, (experts, H, I), 1 / 16)
    pool = kernels.worker_pool(2, isa)
    plain = ExpertMlp(ExpertWeight(gate), ExpertWeight(up), ExpertWeight(down))
    packed = plain.with_weights(lambda weight: kernels.pack(pool, weight))
    ids = np.array([rng.permutation(experts)[:used] for _ in range(tokens)], np.int32)
    shares, x = random_floats(tokens, used, seed=4), random_floats(tokens, H, seed=5)
    got = kernels.expert_mlp(pool, packed, x, ids, shares)
    want = reference.expert_mlp(plain, x, ids, shares)
    assert np.linalg.norm(got - want) <= 1e-3 * np.linalg.norm(want)
