"""Threads, and the instruction set that they compute with."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple

from ktdesk_engine.errors import ConfigError, ResourceError
from ktdesk_engine.kernels import _kernels
from ktdesk_engine.kernels._kernels import WorkerPool as WorkerPool

ISA_VARIABLE = "KTDESK_ISA"
NEVER = 2**63 - 1
"""As a pool's min_tile_rows: tiles are not used."""

_forced_isa: ContextVar[str | None] = ContextVar("forced_isa", default=None)


def isas(*, with_variants: bool = False) -> tuple[str, ...]:
    """The instruction sets that this machine can run, narrowest first.

    with_variants: also what a set falls back to on machines that lack a part of it, such as AVX-512 without VNNI.
    """
    return tuple(_kernels.isas(with_variants))


def why_no_amx() -> str | None:
    """What keeps this process from using tiles; None where nothing does."""
    return _kernels.why_no_amx() or None


@contextmanager
def using(isa: str) -> Iterator[None]:
    """Pools made inside the block use this instruction set unless they are told another."""
    token = _forced_isa.set(_checked_isa(isa, "kernels.using"))
    try:
        yield
    finally:
        _forced_isa.reset(token)


def default_isa() -> str:
    """Of `using`, the environment variable KTDESK_ISA and the widest of the machine, the first that is set."""
    forced = _forced_isa.get()
    if forced is not None:
        return forced
    from_environment = os.environ.get(ISA_VARIABLE)
    return _checked_isa(from_environment, ISA_VARIABLE) if from_environment else isas()[-1]


class ThreadPlace(NamedTuple):
    """Where one thread of a pool belongs."""

    group: int
    """0, 1, ...: one for each NUMA node that has threads."""
    cpus: tuple[int, ...]
    """That it may run on; empty: any. The calling thread is never pinned: here they say which node is near it."""


def worker_pool(num_threads: int, isa: str | None = None, places: Sequence[ThreadPlace] | None = None) -> WorkerPool:
    """Threads that share the work of one operation; the calling thread is the first of them.

    places: one a thread. None: one group, pinned nowhere.
    """
    name = default_isa() if isa is None else _checked_isa(isa, "isa")
    try:
        return WorkerPool(num_threads, name, places)
    except RuntimeError as error:  # std::system_error
        raise ResourceError(
            f"{num_threads} threads could not be started ({error}): ask for fewer, or raise the limits of this process"
        ) from None


def _checked_isa(isa: str, where: str) -> str:
    isa = isa.lower()
    if isa not in isas(with_variants=True):
        raise ConfigError(
            f"{where}: this machine cannot run the instruction set {isa!r}; it can run {', '.join(isas())}"
        )
    return isa
