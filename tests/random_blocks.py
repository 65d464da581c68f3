"""Random blocks of every weight type: of any bytes, or with scales that make their values as large as wanted."""

from __future__ import annotations

import numpy as np

from ktdesk_engine.kernels import Weight
from ktdesk_engine.quants.formats import BLOCKS, WeightType, dequantize

SINGLE_VALUES = [weight_type for weight_type, block in BLOCKS.items() if block.values == 1]
HALVES: dict[WeightType, tuple[int, ...]] = {
    **dict.fromkeys((WeightType.Q4_1, WeightType.Q5_1, WeightType.Q4_K, WeightType.Q5_K), (0, 2)),
    WeightType.Q2_K: (80, 82),
    WeightType.Q3_K: (108,),
    WeightType.Q6_K: (208,),
    WeightType.TQ1_0: (52,),
    WeightType.TQ2_0: (64,),
}
"""Where the float16 of a block lie; at 0 for the types that are not here."""


def random_rows(weight_type: WeightType, num_rows: int, blocks_per_row: int, seed: int = 20) -> np.ndarray:
    """Random bytes, so that scales of every kind occur, and a row each of zeros and of ones."""
    width = blocks_per_row * BLOCKS[weight_type].bytes
    rows = np.random.default_rng(seed).integers(0, 256, (num_rows, width), dtype=np.uint8)
    rows[0], rows[1] = 0, 255
    return rows


def random_weight(rng: np.random.Generator, weight_type: WeightType, shape: tuple[int, ...], size: float) -> Weight:
    """Values in a shape as numpy has it, whose standard deviation is about `size`."""
    if weight_type in SINGLE_VALUES:
        return Weight(weight_type, single_values(weight_type, rng.standard_normal(shape) * size))
    block = BLOCKS[weight_type]
    blocks = rng.integers(0, 256, (*shape[:-1], shape[-1] // block.values, block.bytes), dtype=np.uint8)
    set_scales(weight_type, blocks, 1.0)
    set_scales(weight_type, blocks, size / float(dequantize(blocks, weight_type).std()))
    return Weight(weight_type, blocks.reshape(*shape[:-1], -1))


def single_values(weight_type: WeightType, values: np.ndarray) -> np.ndarray:
    """The bytes of numbers in F32, F16 or BF16."""
    floats = values.astype(np.float32)
    if weight_type is WeightType.BF16:
        return (floats.view(np.uint32) >> 16).astype(np.uint16).view(np.uint8)
    return floats.astype({WeightType.F32: np.float32, WeightType.F16: np.float16}[weight_type]).view(np.uint8)


def set_scales(weight_type: WeightType, blocks: np.ndarray, scale: float) -> None:
    """In place, in every block (..., block bytes): its float16, or the next power of two. Values are their own."""
    if weight_type in SINGLE_VALUES:
        blocks[...] = single_values(weight_type, np.array([scale]))
    elif weight_type is WeightType.MXFP4:  # 255 is no number
        blocks[..., 0] = np.clip(127 + np.round(np.log2(scale)), 0, 254) if np.isfinite(scale) and scale > 0 else 255
    elif weight_type is WeightType.IQ1_M:  # four bits in the upper end of each of the last four words
        bits = int(np.float16(scale).view(np.uint16))
        for word in range(4):
            blocks[..., 49 + 2 * word] &= 0x0F
            blocks[..., 49 + 2 * word] |= (bits >> 4 * word & 15) << 4
    else:
        for place in HALVES.get(weight_type, (0,)):
            blocks[..., place : place + 2] = np.array([scale], np.float16).view(np.uint8)


def assert_same_floats(got: np.ndarray, want: np.ndarray) -> None:
    """Equal to the sign of a zero; any NaN equals any other."""
    np.testing.assert_array_equal(got, want)
    is_number = ~np.isnan(want)
    np.testing.assert_array_equal(np.signbit(got)[is_number], np.signbit(want)[is_number])
