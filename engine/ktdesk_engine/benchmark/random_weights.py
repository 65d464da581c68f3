"""Random blocks of any type: their scales are plain numbers, so that what is computed stays finite."""

from __future__ import annotations

import numpy as np

from ktdesk_engine.errors import ConfigError
from ktdesk_engine.kernels import Blocks, Weight
from ktdesk_engine.quants.formats import BLOCKS, WeightType, row_bytes

HALF_SCALES: dict[WeightType, tuple[int, ...]] = {
    **dict.fromkeys((WeightType.Q4_1, WeightType.Q5_1, WeightType.Q4_K, WeightType.Q5_K), (0, 2)),
    WeightType.Q2_K: (80, 82),
    WeightType.Q3_K: (108,),
    WeightType.Q6_K: (208,),
    WeightType.TQ1_0: (52,),
    WeightType.TQ2_0: (64,),
}
"""Where the float16 of a block lie; at 0 for the others."""
FLOATS = {WeightType.F32: np.float32, WeightType.F16: np.float16}
EXPONENT_OF_1 = 127
FITTING = {
    WeightType.Q2_K: WeightType.Q4_0,
    WeightType.Q3_K: WeightType.Q4_0,
    WeightType.Q4_K: WeightType.Q5_0,
    WeightType.Q5_K: WeightType.Q5_1,
    WeightType.Q6_K: WeightType.Q8_0,
}
"""What files hold instead where rows are no whole number of blocks of 256."""


def fitting_type(weight_type: WeightType, row_length: int) -> WeightType:
    """The type itself, or what takes its place in rows of this length."""
    if row_length % BLOCKS[weight_type].values == 0:
        return weight_type
    fallback = FITTING.get(weight_type, WeightType.IQ4_NL)
    if row_length % BLOCKS[fallback].values:
        raise ConfigError(f"rows of {row_length} weights are no whole number of blocks of 32: give another shape")
    return fallback


def random_weight(weight_type: WeightType, *shape: int, seed: int = 0) -> Weight:
    """shape: (..., rows, row length), a whole number of blocks."""
    rng = np.random.default_rng(seed)
    if weight_type in FLOATS or weight_type is WeightType.BF16:
        return _float_weight(rng, weight_type, shape)
    block = BLOCKS[weight_type]
    blocks = rng.integers(0, 256, (*shape[:-1], shape[-1] // block.values, block.bytes), dtype=np.uint8)
    if weight_type is WeightType.MXFP4:
        blocks[..., 0] = EXPONENT_OF_1 - 6
    elif weight_type is WeightType.IQ1_M:
        _spread_scales(blocks[..., 48:], rng)
    else:
        for place in HALF_SCALES.get(weight_type, (0,)):
            scales = rng.uniform(1e-4, 2e-4, blocks.shape[:-1]).astype(np.float16)
            blocks[..., place : place + 2] = scales[..., None].view(np.uint8)
    return Weight(weight_type, blocks.reshape(*shape[:-1], row_bytes(weight_type, shape[-1])))


def _spread_scales(places: Blocks, rng: np.random.Generator) -> None:
    """places (..., 8): four words, whose highest four bits are those of one float16, the lowest first."""
    words = np.ascontiguousarray(places).view("<u2")
    scales = rng.uniform(1e-4, 2e-4, words.shape[:-1]).astype("<f2").view("<u2")
    nibbles = scales[..., None] >> np.arange(0, 16, 4, dtype=np.uint16) & 15
    places[:] = (words & 0xFFF | nibbles << 12).astype("<u2").view(np.uint8)


def _float_weight(rng: np.random.Generator, weight_type: WeightType, shape: tuple[int, ...]) -> Weight:
    values = rng.standard_normal(shape, np.float32) / np.float32(np.sqrt(shape[-1]))
    if weight_type is WeightType.BF16:
        return Weight(
            weight_type, np.ascontiguousarray((values.view(np.uint32) >> 16).astype(np.uint16)).view(np.uint8)
        )
    return Weight(weight_type, values.astype(FLOATS[weight_type]).view(np.uint8))
