"""How quantized weights lie on the device: codes of 4 or 8 bits, and for each group of them a scale and a minimum.

A GGUF block keeps its scales beside its codes, in bit fields that differ from type to type. Here codes, scales
and minima are arrays of their own, the same for all types, with exactly the file's values:

    value = coarse * fine * (level of its code) - coarse_min * fine_min

`coarse` is the block's float, `fine` the small integer that K formats have for each 16 or 32 values; other types
have none. Codes of 4 bits lie as Q4_0 has them: of each 32 values the first 16 are the low halves of 16 bytes,
the others the high halves. The functions here take a type's blocks apart, on the device that they lie on; the
kernels know only the form.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from ktdesk_engine.quants.flat import FP4_LEVELS, IQ4_LEVELS
from ktdesk_engine.quants.formats import BLOCKS, WeightType


class Parts(NamedTuple):
    """n blocks, taken apart. Tensors are (n, ...)."""

    codes: torch.Tensor
    """(n, values / 2) uint8: 4 bits each; or (n, values) int8"""
    coarse: torch.Tensor
    """(n, 1) float16, or bfloat16 (MXFP4)"""
    coarse_min: torch.Tensor | None = None
    fine: torch.Tensor | None = None
    """(n, groups) int8"""
    fine_min: torch.Tensor | None = None


@dataclass(frozen=True)
class Form:
    """What is the same for all weights of a type."""

    split: Callable[[torch.Tensor], Parts]
    """(n, block bytes) uint8 -> the parts"""
    bits: int = 4
    """Of a code: 4 or 8"""
    group: int = 32
    """Values that share a scale: 16 or 32"""
    zero: int = 0
    """Taken off each code of 4 bits"""
    levels: npt.NDArray[np.float32] | None = None
    """(16,): what codes of 4 bits stand for, where that is not themselves"""


def _float16(blocks: torch.Tensor, start: int) -> torch.Tensor:
    return blocks[:, start : start + 2].contiguous().view(torch.float16)


def _fields(packed: torch.Tensor, bits: int, run: int) -> torch.Tensor:
    """As `quants.bit_fields.unpack`: of every run of bytes first the lowest fields of all, then the next higher."""
    shifts = torch.arange(0, 8, bits, dtype=torch.uint8, device=packed.device)[:, None]
    fields = packed.reshape(len(packed), -1, 1, run) >> shifts & ((1 << bits) - 1)
    return fields.reshape(len(packed), -1)


def _nibbles(fields: torch.Tensor) -> torch.Tensor:
    """Codes of 4 bits, (n, values), two in a byte: (n, values / 2)."""
    runs = fields.reshape(len(fields), -1, 2, 16)
    return (runs[:, :, 0] | runs[:, :, 1] << 4).reshape(len(fields), -1)


def _signed(fields: torch.Tensor, zero: int) -> torch.Tensor:
    return (fields.to(torch.int16) - zero).to(torch.int8)


def _q4_0(blocks: torch.Tensor) -> Parts:
    return Parts(blocks[:, 2:], _float16(blocks, 0))


def _q4_1(blocks: torch.Tensor) -> Parts:
    return Parts(blocks[:, 4:], _float16(blocks, 0), coarse_min=-_float16(blocks, 2))


def _with_fifth_bits(low: torch.Tensor, high: torch.Tensor) -> torch.Tensor:
    return _fields(low, 4, 16) | _fields(high, 1, 1) << 4


def _q5_0(blocks: torch.Tensor) -> Parts:
    return Parts(_signed(_with_fifth_bits(blocks[:, 6:], blocks[:, 2:6]), 16), _float16(blocks, 0))


def _q5_1(blocks: torch.Tensor) -> Parts:
    codes = _signed(_with_fifth_bits(blocks[:, 8:], blocks[:, 4:8]), 0)
    return Parts(codes, _float16(blocks, 0), coarse_min=-_float16(blocks, 2))


def _q8_0(blocks: torch.Tensor) -> Parts:
    return Parts(blocks[:, 2:].contiguous().view(torch.int8), _float16(blocks, 0))


def _q2_k(blocks: torch.Tensor) -> Parts:
    small = _signed(_fields(blocks[:, :16], 4, 16), 0)
    codes = _nibbles(_fields(blocks[:, 16:80], 2, 32))
    return Parts(codes, _float16(blocks, 80), _float16(blocks, 82), small[:, :16], small[:, 16:])


def _q3_k(blocks: torch.Tensor) -> Parts:
    codes = _fields(blocks[:, 32:96], 2, 32) | _fields(blocks[:, :32], 1, 32) << 2
    scales = _fields(blocks[:, 96:104], 4, 8) | _fields(blocks[:, 104:108], 2, 4) << 4
    return Parts(_nibbles(codes), _float16(blocks, 108), fine=_signed(scales, 32))


def _scales_and_mins(blocks: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Of Q4_K and Q5_K, (n, 8) each: as `quants.k_quants` says it."""
    first, second, third = blocks[:, 4:8], blocks[:, 8:12], blocks[:, 12:16]
    scales = torch.cat([first & 63, third & 15 | first >> 6 << 4], dim=1)
    mins = torch.cat([second & 63, third >> 4 | second >> 6 << 4], dim=1)
    return scales.view(torch.int8), mins.view(torch.int8)


def _q4_k(blocks: torch.Tensor) -> Parts:
    scales, mins = _scales_and_mins(blocks)
    return Parts(_nibbles(_fields(blocks[:, 16:], 4, 32)), _float16(blocks, 0), _float16(blocks, 2), scales, mins)


def _q5_k(blocks: torch.Tensor) -> Parts:
    scales, mins = _scales_and_mins(blocks)
    fields = _fields(blocks[:, 48:], 4, 32) | _fields(blocks[:, 16:48], 1, 32) << 4
    return Parts(_signed(fields, 0), _float16(blocks, 0), _float16(blocks, 2), scales, mins)


def _q6_k(blocks: torch.Tensor) -> Parts:
    fields = _fields(blocks[:, :128], 4, 64) | _fields(blocks[:, 128:192], 2, 32) << 4
    scales = blocks[:, 192:208].contiguous().view(torch.int8)
    return Parts(_signed(fields, 32), _float16(blocks, 208), fine=scales)


def _iq4_xs(blocks: torch.Tensor) -> Parts:
    scales = _fields(blocks[:, 4:8], 4, 1) | _fields(blocks[:, 2:4], 2, 1) << 4
    return Parts(blocks[:, 8:], _float16(blocks, 0), fine=_signed(scales, 32))


_POWERS = (np.ldexp(np.float32(1), np.arange(256) - 128).view(np.uint32) >> 16).astype(np.uint16).view(np.int16)
"""The bits of 2 ** (e - 128) in bfloat16, which has them all."""


def _mxfp4(blocks: torch.Tensor) -> Parts:
    powers = torch.from_numpy(_POWERS).to(blocks.device)
    return Parts(blocks[:, 1:], powers[blocks[:, :1].long()].view(torch.bfloat16))


FORMS: dict[WeightType, Form] = {
    WeightType.Q4_0: Form(_q4_0, zero=8),
    WeightType.Q4_1: Form(_q4_1),
    WeightType.Q5_0: Form(_q5_0, bits=8),
    WeightType.Q5_1: Form(_q5_1, bits=8),
    WeightType.Q8_0: Form(_q8_0, bits=8),
    WeightType.Q2_K: Form(_q2_k, group=16),
    WeightType.Q3_K: Form(_q3_k, group=16, zero=4),
    WeightType.Q4_K: Form(_q4_k),
    WeightType.Q5_K: Form(_q5_k, bits=8),
    WeightType.Q6_K: Form(_q6_k, bits=8, group=16),
    WeightType.IQ4_NL: Form(_q4_0, levels=IQ4_LEVELS),
    WeightType.IQ4_XS: Form(_iq4_xs, levels=IQ4_LEVELS),
    WeightType.MXFP4: Form(_mxfp4, levels=FP4_LEVELS),
}
"""The types that keep their bits on the device. F32, F16 and BF16 stay what they are; others become bfloat16."""

_PLAIN: dict[WeightType, torch.dtype] = {WeightType.F32: torch.float32, WeightType.F16: torch.float16}


def plain_type(weight_type: WeightType) -> torch.dtype:
    """Of a type without a form."""
    return _PLAIN.get(weight_type, torch.bfloat16)


def empty_parts(weight_type: WeightType) -> Parts:
    """Of one block: types and sizes."""
    return FORMS[weight_type].split(torch.zeros(1, BLOCKS[weight_type].bytes, dtype=torch.uint8))
