"""Taking packed numbers out of the bytes of weight blocks. Arrays are (n, ...): n blocks side by side."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float32]


def float16_at(blocks: Bytes, start: int) -> Floats:
    """The float16 at byte `start` of each block, as float32: (n, 1)."""
    return blocks[:, start : start + 2].view("<f2").astype(np.float32)


def unpack(packed: Bytes, bits: int, run: int) -> Bytes:
    """Splits bytes into fields of `bits` bits: (n, B) -> (n, B * 8 / bits).

    Of every run of `run` bytes come first the lowest fields of all its bytes, then the next higher ones.
    So run = 1 gives the fields in the order of their bits.
    """
    shifts = np.arange(0, 8, bits, dtype=np.uint8)[:, None]
    fields: Bytes = packed.reshape(len(packed), -1, 1, run) >> shifts & np.uint8((1 << bits) - 1)
    return fields.reshape(len(packed), -1)


def unpack_floats(packed: Bytes, bits: int, run: int) -> Floats:
    """The fields of `unpack` as numbers to calculate with."""
    return unpack(packed, bits, run).astype(np.float32)


def spread(per_group: Floats, num_values: int) -> Floats:
    """Repeats each group's number for all its values: (n, G) -> (n, num_values)."""
    return np.repeat(per_group, num_values // per_group.shape[1], axis=1)
