"""GGUF block formats: which there are, how large their blocks are, and what a block's bytes mean.

`dequantize` is the definition of right for the native kernels. It knows no file and no tensor name. The
decoders are in flat.py (one scale a block), k_quants.py (K formats) and iq_quants.py (codebooks).
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import NamedTuple

import numpy as np

from ktdesk_engine.quants import flat, iq_quants, k_quants
from ktdesk_engine.quants.bit_fields import Bytes, Floats


class WeightType(IntEnum):
    """The tensor types the engine can read. The numbers are those of the GGUF format."""

    F32 = 0
    F16 = 1
    Q4_0 = 2
    Q4_1 = 3
    Q5_0 = 6
    Q5_1 = 7
    Q8_0 = 8
    Q2_K = 10
    Q3_K = 11
    Q4_K = 12
    Q5_K = 13
    Q6_K = 14
    IQ2_XXS = 16
    IQ2_XS = 17
    IQ3_XXS = 18
    IQ1_S = 19
    IQ4_NL = 20
    IQ3_S = 21
    IQ2_S = 22
    IQ4_XS = 23
    IQ1_M = 29
    BF16 = 30
    TQ1_0 = 34
    TQ2_0 = 35
    MXFP4 = 39


class BlockFormat(NamedTuple):
    """A row is a whole number of blocks, each of `values` weights stored in `bytes` bytes."""

    values: int
    bytes: int


BLOCKS: dict[WeightType, BlockFormat] = {
    WeightType.F32: BlockFormat(1, 4),
    WeightType.F16: BlockFormat(1, 2),
    WeightType.BF16: BlockFormat(1, 2),
    WeightType.Q4_0: BlockFormat(32, 18),
    WeightType.Q4_1: BlockFormat(32, 20),
    WeightType.Q5_0: BlockFormat(32, 22),
    WeightType.Q5_1: BlockFormat(32, 24),
    WeightType.Q8_0: BlockFormat(32, 34),
    WeightType.Q2_K: BlockFormat(256, 84),
    WeightType.Q3_K: BlockFormat(256, 110),
    WeightType.Q4_K: BlockFormat(256, 144),
    WeightType.Q5_K: BlockFormat(256, 176),
    WeightType.Q6_K: BlockFormat(256, 210),
    WeightType.IQ1_S: BlockFormat(256, 50),
    WeightType.IQ1_M: BlockFormat(256, 56),
    WeightType.IQ2_XXS: BlockFormat(256, 66),
    WeightType.IQ2_XS: BlockFormat(256, 74),
    WeightType.IQ2_S: BlockFormat(256, 82),
    WeightType.IQ3_XXS: BlockFormat(256, 98),
    WeightType.IQ3_S: BlockFormat(256, 110),
    WeightType.IQ4_NL: BlockFormat(32, 18),
    WeightType.IQ4_XS: BlockFormat(256, 136),
    WeightType.TQ1_0: BlockFormat(256, 54),
    WeightType.TQ2_0: BlockFormat(256, 66),
    WeightType.MXFP4: BlockFormat(32, 17),
}


def row_bytes(weight_type: WeightType, num_values: int) -> int:
    """Bytes of a row of `num_values` weights; ValueError where that is not a whole number of blocks."""
    block = BLOCKS[weight_type]
    num_blocks, rest = divmod(num_values, block.values)
    if rest or num_values < 0:
        raise ValueError(
            f"a row of {num_values} values is not a whole number of {weight_type.name} blocks "
            f"({block.values} values each)"
        )
    return num_blocks * block.bytes


_DECODERS: dict[WeightType, Callable[[Bytes], Floats]] = {
    WeightType.F32: flat.f32,
    WeightType.F16: flat.f16,
    WeightType.BF16: flat.bf16,
    WeightType.Q4_0: flat.q4_0,
    WeightType.Q4_1: flat.q4_1,
    WeightType.Q5_0: flat.q5_0,
    WeightType.Q5_1: flat.q5_1,
    WeightType.Q8_0: flat.q8_0,
    WeightType.Q2_K: k_quants.q2_k,
    WeightType.Q3_K: k_quants.q3_k,
    WeightType.Q4_K: k_quants.q4_k,
    WeightType.Q5_K: k_quants.q5_k,
    WeightType.Q6_K: k_quants.q6_k,
    WeightType.IQ1_S: iq_quants.iq1_s,
    WeightType.IQ1_M: iq_quants.iq1_m,
    WeightType.IQ2_XXS: iq_quants.iq2_xxs,
    WeightType.IQ2_XS: iq_quants.iq2_xs,
    WeightType.IQ2_S: iq_quants.iq2_s,
    WeightType.IQ3_XXS: iq_quants.iq3_xxs,
    WeightType.IQ3_S: iq_quants.iq3_s,
    WeightType.IQ4_NL: flat.iq4_nl,
    WeightType.IQ4_XS: k_quants.iq4_xs,
    WeightType.TQ1_0: flat.tq1_0,
    WeightType.TQ2_0: flat.tq2_0,
    WeightType.MXFP4: flat.mxfp4,
}


def dequantize(data: Bytes, weight_type: WeightType) -> Floats:
    """The weights that rows of blocks stand for. data: (..., row bytes) uint8 -> (..., K) float32."""
    block = BLOCKS[weight_type]
    if data.dtype != np.uint8:
        raise ValueError(f"blocks must be uint8, not {data.dtype}")
    num_blocks, rest = divmod(data.shape[-1], block.bytes)
    if rest:
        raise ValueError(
            f"a row of {data.shape[-1]} bytes is not a whole number of {weight_type.name} blocks "
            f"({block.bytes} bytes each)"
        )
    shape = (*data.shape[:-1], num_blocks * block.values)
    if data.size == 0:
        return np.empty(shape, dtype=np.float32)
    blocks = np.ascontiguousarray(data).reshape(-1, block.bytes)
    # Infinite and NaN scales are for whoever reads the weights to judge: here they mean what they say.
    with np.errstate(over="ignore", invalid="ignore"):
        values = _DECODERS[weight_type](blocks)
    return values.reshape(shape)
