"""Decoders of the formats whose codes point into a codebook: IQ1, IQ2 and IQ3.

Each takes (n, block bytes) uint8 and gives (n, 256) float32. A codebook entry stands for 8 values (IQ1, IQ2)
or 4 (IQ3); the books are in codebooks/, as lists that the native code includes too.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ktdesk_engine.quants.bit_fields import Bytes, Floats, float16_at, spread, unpack, unpack_floats

Integers = npt.NDArray[Any]

IQ1_LEVELS = (-1, 0, 1)
IQ2_LEVELS = (8, 25, 43)
IQ3_XXS_LEVELS = (4, 12, 20, 28, 36, 44, 52, 62)
IQ3_S_LEVELS = (1, 3, 5, 7, 9, 11, 13, 15)


def iq1_s(blocks: Bytes) -> Floats:
    """float16 d, 32 low index bytes, 8 words (3 high bits of four indices, 3-bit scale, sign of the shift).

    d * (2 * scale + 1) * (level +- 1/8), scale and shift for 32 values.
    """
    words = blocks[:, 34:].view("<u2")
    scales = float16_at(blocks, 0) * (2 * _floats(words >> 12 & 7) + 1)
    shifts = 0.125 - 0.25 * _floats(words >> 15)
    indices = blocks[:, 2:34] | _fields(words, 4, 3) << 8
    return spread(scales, 256) * (_look_up("iq1", IQ1_LEVELS, indices) + spread(shifts, 256))


def iq1_m(blocks: Bytes) -> Floats:
    """32 low index bytes, 16 bytes of two (3 high bits, shift sign), 4 words (four scales, 4 bits of d).

    d * (2 * scale + 1) * (level +- 1/8), the scale for 16 values, the shift for 8.
    """
    words = blocks[:, 48:].view("<u2")
    d = (words >> 12 << _shifts(4, 4)).sum(axis=1, keepdims=True, dtype=np.uint16).view("<f2")
    scales = _floats(d) * (2 * _floats(_fields(words, 4, 3)) + 1)
    high = unpack(blocks[:, 32:48], 4, 1).astype(np.uint16)
    shifts = 0.125 - 0.25 * _floats(high >> 3)
    indices = blocks[:, :32] | (high & 7) << 8
    return spread(scales, 256) * (_look_up("iq1", IQ1_LEVELS, indices) + spread(shifts, 256))


def iq2_xxs(blocks: Bytes) -> Floats:
    """float16 d, eight times (four index bytes, a word of four 7-bit sign codes and a 4-bit scale).

    +-d * (scale + 1/2) / 4 * level, the scale for 32 values.
    """
    groups = blocks[:, 2:].reshape(-1, 8, 8)
    scales, signs = _scales_and_signs(groups[..., 4:].view("<u4")[..., 0])
    levels = _look_up("iq2_xxs", IQ2_LEVELS, groups[..., :4].reshape(-1, 32))
    return spread(float16_at(blocks, 0) * scales * 0.25, 256) * levels * signs


def iq2_xs(blocks: Bytes) -> Floats:
    """float16 d, 32 words (9-bit index, 7-bit sign code), 8 bytes of 4-bit scales.

    +-d * (scale + 1/2) / 4 * level, the scale for 16 values.
    """
    words = blocks[:, 2:66].view("<u2")
    scales = float16_at(blocks, 0) * (unpack_floats(blocks[:, 66:], 4, 1) + 0.5) * np.float32(0.25)
    levels = _look_up("iq2_xs", IQ2_LEVELS, words & 511)
    return spread(scales, 256) * levels * _signs(_sign_bytes()[words >> 9])


def iq2_s(blocks: Bytes) -> Floats:
    """float16 d, 32 low index bytes, 32 sign bytes, 8 bytes of 2 high index bits, 8 bytes of 4-bit scales.

    +-d * (scale + 1/2) / 4 * level, the scale for 16 values.
    """
    scales = float16_at(blocks, 0) * (unpack_floats(blocks[:, 74:], 4, 1) + 0.5) * np.float32(0.25)
    indices = blocks[:, 2:34] | unpack(blocks[:, 66:74], 2, 1).astype(np.uint16) << 8
    return spread(scales, 256) * _look_up("iq2_s", IQ2_LEVELS, indices) * _signs(blocks[:, 34:66])


def iq3_xxs(blocks: Bytes) -> Floats:
    """float16 d, 64 index bytes, 8 words of four 7-bit sign codes and a 4-bit scale.

    +-d * (scale + 1/2) / 2 * level, the scale for 32 values.
    """
    scales, signs = _scales_and_signs(blocks[:, 66:].view("<u4"))
    levels = _look_up("iq3_xxs", IQ3_XXS_LEVELS, blocks[:, 2:66])
    return spread(float16_at(blocks, 0) * scales * 0.5, 256) * levels * signs


def iq3_s(blocks: Bytes) -> Floats:
    """float16 d, 64 low index bytes, 8 bytes of ninth index bits, 32 sign bytes, 4 bytes of 4-bit scales.

    +-d * (2 * scale + 1) * level, the scale for 32 values.
    """
    scales = float16_at(blocks, 0) * (2 * unpack_floats(blocks[:, 106:], 4, 1) + 1)
    indices = blocks[:, 2:66] | unpack(blocks[:, 66:74], 1, 1).astype(np.uint16) << 8
    return spread(scales, 256) * _look_up("iq3_s", IQ3_S_LEVELS, indices) * _signs(blocks[:, 74:106])


def _scales_and_signs(words: Integers) -> tuple[Floats, Floats]:
    """scale + 1/2, (n, 8), and the signs, (n, 256), of the words of IQ2_XXS and IQ3_XXS."""
    return _floats(words >> 28) + 0.5, _signs(_sign_bytes()[_fields(words, 4, 7)])


def _signs(sign_bytes: Bytes) -> Floats:
    """-1 where the bit is set, else 1: (n, B) -> (n, 8 * B)."""
    return 1 - 2 * unpack_floats(sign_bytes, 1, 1)


@cache
def _sign_bytes() -> Bytes:
    """The sign byte of each 7-bit code: the eighth bit makes the number of minus signs even."""
    codes = np.arange(128, dtype=np.uint8)
    eighth_bits: Bytes = unpack(codes[:, None], 1, 1).sum(axis=1, dtype=np.uint8) << np.uint8(7)
    sign_bytes: Bytes = codes | eighth_bits
    return sign_bytes


def _look_up(book: str, levels: tuple[int, ...], indices: Integers) -> Floats:
    """The values of the entries at `indices`, (n, G), one entry after the other: (n, 256)."""
    return _codebook(book, levels)[indices].reshape(len(indices), -1)


@cache
def _codebook(book: str, levels: tuple[int, ...]) -> Floats:
    """(entries, 8 or 4) values. A stored entry holds 8 level numbers of 2 bits or 4 of 3 bits."""
    text = (Path(__file__).parent / "codebooks" / f"{book}.csv").read_text(encoding="ascii")
    entries = np.array([[int(entry, 16)] for entry in text.split(",")], dtype=np.uint16)
    numbers = _fields(entries, 4, 3) if len(levels) == 8 else _fields(entries, 8, 2)
    return np.array(levels, dtype=np.float32)[numbers]


def _fields(words: Integers, count: int, bits: int) -> Integers:
    """The lowest `count` fields of `bits` bits of each word, lowest first: (n, W) -> (n, W * count)."""
    fields: Integers = words[..., None] >> _shifts(count, bits) & (1 << bits) - 1
    return fields.reshape(len(words), -1)


def _shifts(count: int, step: int) -> Integers:
    return np.arange(0, count * step, step, dtype=np.uint16)


def _floats(numbers: Integers) -> Floats:
    return numbers.astype(np.float32)
