"""What choosing a token asks of the logits of a whole vocabulary."""

from __future__ import annotations

import numpy as np

from ktdesk_engine.kernels import _kernels
from ktdesk_engine.kernels.arrays import Floats, Ids, new_ids
from ktdesk_engine.kernels.pools import WorkerPool


def count_not_finite(pool: WorkerPool, values: Floats) -> Ids:
    """(1,): how many of values (T, V) are infinite or no numbers. They may be some columns of a wider array."""
    count = new_ids(pool, 1)
    _kernels.count_not_finite(pool, values, count)
    return count


def top_k(values: Floats, k: int) -> Ids:
    """The ids of the k largest values of (V,), largest first, the lower id first among equals."""
    ids = np.empty(k, np.int32)
    _kernels.top_k(values, ids)
    return ids
