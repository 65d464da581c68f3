"""What choosing a token asks of the logits of a whole vocabulary."""

from __future__ import annotations

import numpy as np

from ktdesk_engine.kernels import _kernels
from ktdesk_engine.kernels.arrays import Floats, Ids


def all_finite(values: Floats) -> bool:
    """Of (T, V): whether all are finite numbers. May be some columns of a wider array."""
    return _kernels.all_finite(values)


def top_k(values: Floats, k: int) -> Ids:
    """The ids of the k largest values of (V,), largest first, the lower id first among equals."""
    ids = np.empty(k, np.int32)
    _kernels.top_k(values, ids)
    return ids
