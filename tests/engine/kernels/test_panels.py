"""Packed weights: the file's values exactly, multiplied with activations of fifteen bits."""

from __future__ import annotations

import numpy as np
import pytest

from ktdesk_engine import kernels
from ktdesk_engine.kernels import ExpertMlp, ExpertWeight, Weight, reference
from ktdesk_engine.quants.formats import BLOCKS, WeightType, row_bytes

ISAS = kernels.isas(with_variants=True)
PANEL_TYPES = [
    weight_type
    for weight_type in WeightType
    if kernels.has_panels(Weight(weight_type, np.zeros((1, row_bytes(weight_type, 256)), np.uint8)))
    and weight_type not in (WeightType.F16, WeightType.BF16)
]
"""Those whose panels hold bytes; test_float_panels.py has the others."""
HALF_SCALES = {
    WeightType.Q4_1: (0, 2),
    WeightType.Q5_1: (0, 2),
    WeightType.Q2_K: (80, 82),
    WeightType.Q3_K: (108,),
    WeightType.Q4_K: (0, 2),
    WeightType.Q5_K: (0, 2),
    WeightType.Q6_K: (208,),
}
"""Where the float16 of a block lie; at 0 for the others."""


def random_weight(weight_type: WeightType, *shape: int, seed: int = 0) -> Weight:
    """Random codes with scales of a few different sizes and signs. shape: (..., rows, row length)."""
    rng = np.random.default_rng(seed)
    block = BLOCKS[weight_type]
    blocks = rng.integers(0, 256, (*shape[:-1], shape[-1] // block.values, block.bytes), dtype=np.uint8)
    if weight_type is WeightType.MXFP4:
        blocks[..., 0] = rng.integers(110, 126, blocks.shape[:-1])
    else:
        for place in HALF_SCALES.get(weight_type, (0,)):
            scales = (rng.uniform(-1, 1, blocks.shape[:-1]) / 64).astype(np.float16)
            blocks[..., place : place + 2] = scales[..., None].view(np.uint8)
    return Weight(weight_type, blocks.reshape(*shape[:-1], row_bytes(weight_type, shape[-1])))


def rounding_bound(weight: Weight, x: np.ndarray) -> np.ndarray:
    """(T, rows): half a step of each activation times the magnitude of its weight, and the rounding of sums."""
    values = np.abs(reference.linear(weight, np.eye(weight.row_length, dtype=np.float32)))  # (row length, rows)
    steps = np.abs(x).max(axis=-1, keepdims=True) / (127 * 128)
    products = np.abs(x) @ values
    return 0.5 * steps * values.sum(axis=0) + 1e-5 * (products + np.abs(x).max() * 64 * np.abs(values).max())


def test_these_types_have_panels() -> None:
    assert {weight_type.name for weight_type in PANEL_TYPES} == {
        *("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "IQ4_NL", "IQ4_XS", "MXFP4"),
        *("Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K"),
    }


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("weight_type", PANEL_TYPES, ids=lambda t: t.name)
@pytest.mark.parametrize(("rows", "tokens"), [(1, 1), (16, 3), (33, 4), (50, 9)])
def test_a_packed_product_is_the_reference_within_rounding(
    isa: str, weight_type: WeightType, rows: int, tokens: int
) -> None:
    length = 3 * BLOCKS[weight_type].values if BLOCKS[weight_type].values == 256 else 1408
    weight = random_weight(weight_type, rows, length)
    x = np.random.default_rng(1).standard_normal((tokens, length)).astype(np.float32)
    bias = np.random.default_rng(2).standard_normal(rows).astype(np.float32)
    pool = kernels.worker_pool(2, isa)
    got = kernels.linear(pool, kernels.pack(pool, weight), x, bias)
    error = np.abs(got - reference.linear(weight, x, bias))
    assert (error <= rounding_bound(weight, x)).all()


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("weight_type", PANEL_TYPES, ids=lambda t: t.name)
def test_a_packed_weight_has_exactly_the_files_values(isa: str, weight_type: WeightType) -> None:
    """Each activation picks one value of a row: what comes out is that value, but for float32's last bits."""
    weight = random_weight(weight_type, 20, 256, seed=3)
    pool = kernels.worker_pool(1, isa)
    got = kernels.linear(pool, kernels.pack(pool, weight), np.eye(256, dtype=np.float32))
    want = reference.linear(weight, np.eye(256, dtype=np.float32))
    np.testing.assert_allclose(got, want, rtol=2e-6, atol=4e-7 * np.abs(want).max())


@pytest.mark.parametrize("isa", ISAS)
def test_a_tokens_result_does_not_depend_on_its_neighbours(isa: str) -> None:
    weight = random_weight(WeightType.Q4_K, 40, 512)
    x = np.random.default_rng(1).standard_normal((13, 512)).astype(np.float32)
    pool = kernels.worker_pool(2, isa)
    packed = kernels.pack(pool, weight)
    together = kernels.linear(pool, packed, x)
    for t in range(13):
        np.testing.assert_array_equal(together[t], kernels.linear(pool, packed, x[t : t + 1])[0])


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("size", [0, 1e-42, 1e-20, 1e30])
def test_activations_of_any_size_keep_their_scale(isa: str, size: float) -> None:
    weight, x = random_weight(WeightType.Q8_0, 16, 256), np.full((2, 256), size, np.float32)
    pool = kernels.worker_pool(1, isa)
    got = kernels.linear(pool, kernels.pack(pool, weight), x)
    np.testing.assert_allclose(got, reference.linear(weight, x), rtol=1e-2, atol=1e-30)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_value_that_is_not_finite_makes_its_row_nan_and_no_other(isa: str, bad: float) -> None:
    weight, x = random_weight(WeightType.Q4_0, 16, 64), np.ones((3, 64), np.float32)
    x[1, 40] = bad
    pool = kernels.worker_pool(1, isa)
    got = kernels.linear(pool, kernels.pack(pool, weight), x)
    assert np.isfinite(got).all(axis=-1).tolist() == [True, False, True]


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize(("experts", "used", "tokens"), [(1, 1, 1), (8, 2, 1), (8, 2, 40), (4, 4, 9)])
def test_packed_experts_match_the_reference_whatever_each_weights_type(
    isa: str, experts: int, used: int, tokens: int
) -> None:
    H, I = 256, 512
    rng = np.random.default_rng(5)
    pool = kernels.worker_pool(2, isa)
    raw_down = Weight(WeightType.F32, (rng.standard_normal((experts, H, I)) / 16).astype(np.float32).view(np.uint8))
    gate, up = random_weight(WeightType.Q4_K, experts, I, H), random_weight(WeightType.Q6_K, experts, I, H, seed=1)
    for down in (random_weight(WeightType.Q5_1, experts, H, I, seed=2), raw_down):
        plain = ExpertMlp(ExpertWeight(gate), ExpertWeight(up), ExpertWeight(down))
        packed = ExpertMlp(
            ExpertWeight(kernels.pack(pool, gate)),
            ExpertWeight(kernels.pack(pool, up)),
            ExpertWeight(kernels.pack(pool, down) if kernels.has_panels(down) else down),
        )
        ids = np.array([rng.permutation(experts)[:used] for _ in range(tokens)], np.int32)
        weights = rng.standard_normal((tokens, used)).astype(np.float32)
        x = rng.standard_normal((tokens, H)).astype(np.float32) / 8
        got = kernels.expert_mlp(pool, packed, x, ids, weights)
        want = reference.expert_mlp(plain, x, ids, weights)
        assert np.linalg.norm(got - want) <= 1e-3 * np.linalg.norm(want)
