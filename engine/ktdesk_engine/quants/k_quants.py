"""Decoders of the K formats and IQ4_XS: 256 values with a scale for each 16 or 32 of them.

Each takes (n, block bytes) uint8 and gives (n, 256) float32.
"""

from __future__ import annotations

import numpy as np

from ktdesk_engine.quants.bit_fields import Bytes, Floats, float16_at, spread, unpack, unpack_floats
from ktdesk_engine.quants.flat import IQ4_LEVELS


def q2_k(blocks: Bytes) -> Floats:
    """16 bytes (4-bit scale, 4-bit min), 64 bytes of 2-bit q, float16 d, float16 dmin.

    d * scale * q - dmin * min, both for 16 values.
    """
    scales = float16_at(blocks, 80) * unpack_floats(blocks[:, :16], 4, 16)[:, :16]
    mins = float16_at(blocks, 82) * unpack_floats(blocks[:, :16], 4, 16)[:, 16:]
    return spread(scales, 256) * unpack_floats(blocks[:, 16:80], 2, 32) - spread(mins, 256)


def q3_k(blocks: Bytes) -> Floats:
    """32 bytes of third bits, 64 bytes of low bits, 12 bytes of sixteen 6-bit scales, float16 d.

    d * (scale - 32) * (q - 4), the scale for 16 values.
    """
    codes = unpack_floats(blocks[:, 96:104], 4, 8) + 16 * unpack_floats(blocks[:, 104:108], 2, 4)
    scales = float16_at(blocks, 108) * (codes - 32)
    q = unpack_floats(blocks[:, 32:96], 2, 32) + 4 * unpack_floats(blocks[:, :32], 1, 32)
    return spread(scales, 256) * (q - 4)


def q4_k(blocks: Bytes) -> Floats:
    """float16 d, float16 dmin, 12 bytes of scales and mins, 128 bytes of 4-bit q.

    d * scale * q - dmin * min, both for 32 values.
    """
    scales, mins = _scales_and_mins(blocks)
    return spread(scales, 256) * unpack_floats(blocks[:, 16:], 4, 32) - spread(mins, 256)


def q5_k(blocks: Bytes) -> Floats:
    """As Q4_K, with 32 bytes of fifth bits before the 128 bytes of low bits."""
    scales, mins = _scales_and_mins(blocks)
    q = unpack_floats(blocks[:, 48:], 4, 32) + 16 * unpack_floats(blocks[:, 16:48], 1, 32)
    return spread(scales, 256) * q - spread(mins, 256)


def _scales_and_mins(blocks: Bytes) -> tuple[Floats, Floats]:
    """d * scale and dmin * min of Q4_K and Q5_K, each (n, 8).

    Of the twelve bytes the first four hold scales 0..3, the next four mins 0..3, the last four the low halves
    of scales and mins 4..7; their upper two bits are the top bits of the first eight bytes.
    """
    first, second, third = blocks[:, 4:8], blocks[:, 8:12], blocks[:, 12:16]
    scales = [first & 63, third & 15 | first >> 6 << 4]
    mins = [second & 63, third >> 4 | second >> 6 << 4]
    return (
        float16_at(blocks, 0) * np.concatenate(scales, axis=1).astype(np.float32),
        float16_at(blocks, 2) * np.concatenate(mins, axis=1).astype(np.float32),
    )


def q6_k(blocks: Bytes) -> Floats:
    """128 bytes of low bits, 64 bytes of high bits, 16 signed scales, float16 d.

    d * scale * (q - 32), the scale for 16 values.
    """
    scales = float16_at(blocks, 208) * blocks[:, 192:208].view(np.int8).astype(np.float32)
    q = unpack_floats(blocks[:, :128], 4, 64) + 16 * unpack_floats(blocks[:, 128:192], 2, 32)
    return spread(scales, 256) * (q - 32)


def iq4_xs(blocks: Bytes) -> Floats:
    """float16 d, 2 bytes of high and 4 bytes of low scale bits, 128 bytes of 4-bit codes.

    d * (scale - 32) * level, the scale for 32 values.
    """
    codes = unpack_floats(blocks[:, 4:8], 4, 1) + 16 * unpack_floats(blocks[:, 2:4], 2, 1)
    scales = float16_at(blocks, 0) * (codes - 32)
    return spread(scales, 256) * IQ4_LEVELS[unpack(blocks[:, 8:], 4, 16)]
