"""Operations of a pool on a thread of their own, in the order in which they were submitted."""

from __future__ import annotations

import numpy as np

from ktdesk_engine.kernels import _kernels
from ktdesk_engine.kernels._kernels import Stream as Stream
from ktdesk_engine.kernels.arrays import Blocks, Ids, new_ids
from ktdesk_engine.kernels.pools import WorkerPool


def upload(pool: WorkerPool, ids: Ids) -> Ids:
    """A copy of what ids has now, for operations on the pool's stream."""
    copied = new_ids(pool, *ids.shape)
    overwrite(pool, ids, copied)
    return copied


def overwrite(pool: WorkerPool, ids: Ids, to: Ids) -> None:
    """Puts what ids has now there, when the stream comes to it."""
    _kernels.upload(pool, np.ascontiguousarray(ids).view(np.uint8).reshape(-1), to.view(np.uint8).reshape(-1))


def copy(pool: WorkerPool, from_: Blocks, to: Blocks) -> None:
    """When the stream comes to it; both (bytes,)."""
    _kernels.copy(pool, from_, to)


def pause(pool: WorkerPool, seconds: float) -> None:
    """An operation that takes so long and computes nothing."""
    _kernels.pause(pool, round(seconds * 1e9))


def fail(pool: WorkerPool, message: str) -> None:
    """An operation that fails."""
    _kernels.fail(pool, message)
