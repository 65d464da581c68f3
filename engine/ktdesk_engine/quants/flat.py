"""Decoders of the block formats with one scale: (n, block bytes) uint8 -> (n, block values) float32."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ktdesk_engine.quants.bit_fields import Bytes, Floats, float16_at, unpack, unpack_floats

IQ4_LEVELS = np.array([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], dtype=np.float32)
"""What the 4-bit codes of IQ4_NL and IQ4_XS stand for."""

FP4_LEVELS = np.array([0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12], dtype=np.float32)
"""Twice the values of the 4-bit floats E2M1. Code 8, their negative zero, reads as plain zero."""


def f32(blocks: Bytes) -> Floats:
    return blocks.view("<f4").astype(np.float32)


def f16(blocks: Bytes) -> Floats:
    return float16_at(blocks, 0)


def bf16(blocks: Bytes) -> Floats:
    """The upper half of a float32's bits."""
    bits: npt.NDArray[np.uint32] = blocks.view("<u2").astype(np.uint32) << np.uint32(16)
    return bits.view(np.float32)


def q4_0(blocks: Bytes) -> Floats:
    """float16 d, 16 bytes of 4-bit q. d * (q - 8)"""
    return float16_at(blocks, 0) * (unpack_floats(blocks[:, 2:], 4, 16) - 8)


def q4_1(blocks: Bytes) -> Floats:
    """float16 d, float16 m, 16 bytes of 4-bit q. d * q + m"""
    return float16_at(blocks, 0) * unpack_floats(blocks[:, 4:], 4, 16) + float16_at(blocks, 2)


def q5_0(blocks: Bytes) -> Floats:
    """float16 d, 4 bytes of fifth bits, 16 bytes of low bits. d * (q - 16)"""
    q = unpack_floats(blocks[:, 6:], 4, 16) + 16 * unpack_floats(blocks[:, 2:6], 1, 1)
    return float16_at(blocks, 0) * (q - 16)


def q5_1(blocks: Bytes) -> Floats:
    """float16 d, float16 m, 4 bytes of fifth bits, 16 bytes of low bits. d * q + m"""
    q = unpack_floats(blocks[:, 8:], 4, 16) + 16 * unpack_floats(blocks[:, 4:8], 1, 1)
    return float16_at(blocks, 0) * q + float16_at(blocks, 2)


def q8_0(blocks: Bytes) -> Floats:
    """float16 d, 32 signed bytes q. d * q"""
    return float16_at(blocks, 0) * blocks[:, 2:].view(np.int8).astype(np.float32)


def iq4_nl(blocks: Bytes) -> Floats:
    """float16 d, 16 bytes of 4-bit codes. d * level"""
    return float16_at(blocks, 0) * IQ4_LEVELS[unpack(blocks[:, 2:], 4, 16)]


def mxfp4(blocks: Bytes) -> Floats:
    """Exponent byte e, 16 bytes of 4-bit floats. 2 ** (e - 128) * level; the levels are doubled values."""
    scale: Floats = np.ldexp(np.float32(1), blocks[:, :1].astype(np.int32) - 128)
    return scale * FP4_LEVELS[unpack(blocks[:, 1:], 4, 16)]


def tq1_0(blocks: Bytes) -> Floats:
    """Five ternary digits a byte (the last 4 bytes: four), then float16 d. d * (digit - 1)

    A byte is its digits as a binary fraction, rounded up: times 3 ** i modulo 1, digit i is in front.
    """
    digits = [_ternary(blocks[:, :32], 5), _ternary(blocks[:, 32:48], 5), _ternary(blocks[:, 48:52], 4)]
    return float16_at(blocks, 52) * (np.concatenate(digits, axis=1) - 1)


def _ternary(packed: Bytes, num_digits: int) -> Floats:
    """(n, B) -> (n, num_digits * B): the first digits of all bytes, then the second ones, ..."""
    powers = np.array([1, 3, 9, 27, 81], dtype=np.uint8)[:num_digits, None]
    fractions: Bytes = packed[:, None, :] * powers  # modulo 256 is meant
    return np.floor(fractions.astype(np.float32) * 3 / 256).reshape(len(packed), -1)


def tq2_0(blocks: Bytes) -> Floats:
    """64 bytes of 2-bit q, then float16 d. d * (q - 1)"""
    return float16_at(blocks, 64) * (unpack_floats(blocks[:, :64], 2, 32) - 1)
