"""The accelerator that a setting names."""

from __future__ import annotations

import importlib
from typing import cast

from ktdesk_engine.backends.accelerator import Accelerator
from ktdesk_engine.backends.cuda.availability import look, problem
from ktdesk_engine.backends.host_thread import HostThreadAccelerator
from ktdesk_engine.config import AcceleratorKind
from ktdesk_engine.errors import AcceleratorError
from ktdesk_engine.kernels import WorkerPool


def open_accelerator(kind: AcceleratorKind | None, pool: WorkerPool, memory_bytes: int | None) -> Accelerator | None:
    """pool: the CPU's. memory_bytes: that may be used; None: all that is free. AcceleratorError where there is none."""
    if kind is None:
        return None
    if kind == "host-thread":
        return HostThreadAccelerator(pool, memory_bytes)
    return _open_cuda(pool, memory_bytes)


def _open_cuda(pool: WorkerPool, memory_bytes: int | None) -> Accelerator:
    """backends/cuda alone needs torch, so it is loaded when it is asked for, and only where it is of use."""
    why_not = problem(look())
    if why_not is not None:
        raise AcceleratorError(f"accelerator cuda: {why_not}")
    cuda = importlib.import_module("ktdesk_engine.backends.cuda.accelerator")
    return cast(Accelerator, cuda.open_gpu(pool, memory_bytes))
