"""The Python face of the extension: numpy arrays in, numpy arrays out.

Knows no model. What each function computes is written once more in `kernels.reference`, in numpy: that is
the definition of right. An operation runs on the threads and the instruction set of the pool it is given.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ktdesk_engine.errors import ConfigError, ResourceError
from ktdesk_engine.kernels import _kernels
from ktdesk_engine.kernels._kernels import WorkerPool as WorkerPool
from ktdesk_engine.quants.formats import BLOCKS, WeightType, row_bytes

Floats = npt.NDArray[np.float32]
Ids = npt.NDArray[np.int32]
Blocks = npt.NDArray[np.uint8]

ISA_VARIABLE = "KTDESK_ISA"
PANEL_ROWS = 16
CACHE_LINE = 64
CACHE_PADDING = 16

_forced_isa: ContextVar[str | None] = ContextVar("forced_isa", default=None)


class Activation(IntEnum):
    """What stands between gate and up and down."""

    SWIGLU = 0
    """silu(gate) * up"""
    SWIGLU_OAI = 1
    """g = min(gate, 7), u = clamp(up, -7, 7): g * sigmoid(1.702 g) * (u + 1)"""


class RopePairing(IntEnum):
    """Which elements of a head turn together."""

    NEIGHBOURS = 0
    """2i with 2i + 1: "normal"."""
    HALVES = 1
    """i with i + half of the turned elements: "neox"."""


class PackedShape(NamedTuple):
    """What panels do not tell of themselves."""

    num_rows: int
    row_length: int


@dataclass(frozen=True)
class Weight:
    """Rows of weights as they lie in the file, or packed in panels of 16 rows (csrc/panels.h)."""

    type: WeightType
    blocks: Blocks
    """(rows, row_bytes), or (E, rows, row_bytes). In panels: (panels, panel_bytes), or (E, panels, panel_bytes)."""
    packed: PackedShape | None = None
    """None: rows as they lie in the file."""

    @property
    def num_rows(self) -> int:
        return self.packed.num_rows if self.packed else int(self.blocks.shape[-2])

    @property
    def row_length(self) -> int:
        """Weights in a row: the width of what it is multiplied with."""
        if self.packed:
            return self.packed.row_length
        block = BLOCKS[self.type]
        return int(self.blocks.shape[-1]) // block.bytes * block.values


@dataclass(frozen=True)
class ExpertWeight:
    """One weight of all experts: blocks (E, rows, row_bytes), bias (E, rows)."""

    weight: Weight
    bias: Floats | None = None

    @property
    def as_tuple(self) -> tuple[int, Blocks, PackedShape | None, Floats | None]:
        return int(self.weight.type), self.weight.blocks, self.weight.packed, self.bias


@dataclass(frozen=True)
class ExpertMlp:
    """gate and up are (E, I, H), down is (E, H, I)."""

    gate: ExpertWeight
    up: ExpertWeight
    down: ExpertWeight
    activation: Activation = Activation.SWIGLU

    @property
    def weights(self) -> list[Weight]:
        return [self.gate.weight, self.up.weight, self.down.weight]

    def with_weights(self, replaced: Callable[[Weight], Weight]) -> ExpertMlp:
        """The same with replaced(weight) for each weight."""
        gate, up, down = (replace(part, weight=replaced(part.weight)) for part in (self.gate, self.up, self.down))
        return replace(self, gate=gate, up=up, down=down)


@dataclass(frozen=True)
class PagedContext:
    """What the tokens of a batch may look at."""

    page_tables: Ids
    """(S, pages): for each sequence the page that holds each stretch of positions."""
    sequences: Ids
    """(T,): the row of page_tables of each token."""
    positions: Ids
    """(T,): a token sees positions 0..its own."""

    @property
    def as_tuple(self) -> tuple[Ids, Ids, Ids]:
        return self.page_tables, self.sequences, self.positions


@dataclass(frozen=True)
class CachedRows:
    """Keys or values of one layer."""

    type: WeightType
    """F32, F16, BF16 or Q8_0."""
    length: int
    """Elements of a head; zeros follow up to a multiple of CACHE_PADDING."""
    pages: Blocks
    """(pages, heads, page_size, row bytes). A row may be longer than length asks for: what follows is not read."""

    @property
    def as_tuple(self) -> tuple[int, int, Blocks]:
        return int(self.type), self.length, self.pages


def cached_row_bytes(weight_type: WeightType, length: int) -> int:
    """Bytes of a cached head of `length` elements; ValueError where that is not a whole number of blocks."""
    row_bytes(weight_type, length)
    return row_bytes(weight_type, -(-length // CACHE_PADDING) * CACHE_PADDING)


@dataclass(frozen=True)
class AttentionRule:
    """How scores are made."""

    scale: float
    window: int = 0
    """A token sees this many last positions, its own included; 0 sees all."""
    soft_cap: float = 0.0
    """score = cap * tanh(score / cap); 0 is none."""
    sinks: Floats | None = None
    """(heads,): one more score in the denominator, without a value."""


def isas(*, with_variants: bool = False) -> tuple[str, ...]:
    """The instruction sets that this machine can run, narrowest first.

    with_variants: also what a set falls back to on machines that lack a part of it, such as AVX-512 without VNNI.
    """
    return tuple(_kernels.isas(with_variants))


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


def worker_pool(num_threads: int, isa: str | None = None) -> WorkerPool:
    """Threads that share the work of one operation; the calling thread is one of them."""
    name = default_isa() if isa is None else _checked_isa(isa, "isa")
    try:
        return WorkerPool(num_threads, name)
    except RuntimeError as error:  # std::system_error
        raise ResourceError(
            f"{num_threads} threads could not be started ({error}): ask for fewer, or raise the limits of this process"
        ) from None


def _checked_isa(isa: str, where: str) -> str:
    if isa not in isas(with_variants=True):
        raise ConfigError(
            f"{where}: this machine cannot run the instruction set {isa!r}; it can run {', '.join(isas())}"
        )
    return isa


def has_panels(weight: Weight) -> bool:
    """Whether rows of this type and length can be packed."""
    return _kernels.panel_bytes(int(weight.type), weight.row_length) > 0


def packed_bytes(weight: Weight) -> int:
    """What the weight takes in panels; 0 where it has none."""
    num_panels = -(-weight.num_rows // PANEL_ROWS)
    panel_bytes = _kernels.panel_bytes(int(weight.type), weight.row_length)
    return math.prod(weight.blocks.shape[:-2]) * num_panels * panel_bytes


def pack(pool: WorkerPool, weight: Weight, when_read: Callable[[Blocks], None] = lambda rows: None) -> Weight:
    """The same weights in panels, their values unchanged. `has_panels` holds.

    when_read is called with rows (rows, row_bytes) that are not needed any more.
    """
    shape = PackedShape(weight.num_rows, weight.row_length)
    panel_bytes = _kernels.panel_bytes(int(weight.type), weight.row_length)
    panels = aligned_bytes(*weight.blocks.shape[:-2], -(-weight.num_rows // PANEL_ROWS), panel_bytes)
    for index in np.ndindex(weight.blocks.shape[:-2]):
        _kernels.pack(pool, int(weight.type), weight.blocks[index], panels[index])
        when_read(weight.blocks[index])
    return Weight(weight.type, panels, shape)


def aligned_bytes(*shape: int) -> Blocks:
    """Bytes, not yet filled, that start at a cache line."""
    size = math.prod(shape)
    memory = np.empty(size + CACHE_LINE, np.uint8)
    start = -memory.ctypes.data % CACHE_LINE
    return memory[start : start + size].reshape(shape)


def linear(pool: WorkerPool, weight: Weight, x: Floats, bias: Floats | None = None) -> Floats:
    """x (T, row_length) times the rows of weight, plus bias (rows,) -> (T, rows)."""
    out = np.empty((x.shape[0], weight.num_rows), np.float32)
    _kernels.linear(pool, int(weight.type), weight.blocks, weight.packed, x, out, bias)
    return out


def linear_per_head(pool: WorkerPool, weight: Weight, x: Floats) -> Floats:
    """x (T, heads, row_length) times the rows that weight (heads, rows, row_bytes) has for each head.

    -> (T, heads, rows). x may be a slice of longer heads.
    """
    out = np.empty((x.shape[0], x.shape[1], weight.num_rows), np.float32)
    _kernels.linear_per_head(pool, int(weight.type), weight.blocks, x, out)
    return out


def get_rows(pool: WorkerPool, weight: Weight, ids: Ids) -> Floats:
    """The rows `ids` (T,) of weight -> (T, row_length)."""
    out = np.empty((ids.shape[0], weight.row_length), np.float32)
    _kernels.get_rows(pool, int(weight.type), weight.blocks, ids, out)
    return out


def expert_mlp(pool: WorkerPool, mlp: ExpertMlp, x: Floats, ids: Ids, weights: Floats) -> Floats:
    """Weighted sum over the experts ids (T, K) with weights (T, K) of x (T, H) -> (T, H)."""
    out = np.empty_like(x)
    _kernels.expert_mlp(
        pool, mlp.gate.as_tuple, mlp.up.as_tuple, mlp.down.as_tuple, int(mlp.activation), ids, weights, x, out
    )
    return out


def store_rows(pool: WorkerPool, rows: CachedRows, context: PagedContext, x: Floats) -> None:
    """Writes x (T, heads, length) to where the tokens stand, as the type of the rows has it.

    Finite numbers stay finite: those too large for 16 bits become the largest there is. Others become NaN.
    """
    _kernels.store_rows(pool, rows.as_tuple, context.as_tuple, x)


def attention(
    pool: WorkerPool,
    queries: Floats,
    keys: CachedRows,
    values: CachedRows,
    context: PagedContext,
    rule: AttentionRule,
) -> Floats:
    """queries (T, heads, D) over cached keys and values -> (T, heads, value D).

    The cache holds the tokens' own keys and values already.
    """
    out = np.empty((*queries.shape[:2], values.length), np.float32)
    _kernels.attention(
        pool,
        queries,
        keys.as_tuple,
        values.as_tuple,
        context.as_tuple,
        out,
        rule.scale,
        rule.window,
        rule.soft_cap,
        rule.sinks,
    )
    return out


def rms_norm(pool: WorkerPool, x: Floats, weight: Floats, epsilon: float) -> Floats:
    """x / sqrt(mean(x²) + epsilon) * weight over the last axis, which is as long as weight."""
    rows = x.reshape(-1, x.shape[-1])
    out = np.empty_like(rows)
    _kernels.rms_norm(pool, rows, weight, epsilon, out)
    return out.reshape(x.shape)


def rope(pool: WorkerPool, x: Floats, cosines: Floats, sines: Floats, pairing: RopePairing) -> None:
    """Turns, in place, the first 2P elements of each head of x (T, heads, D) by cosines and sines (T, P)."""
    _kernels.rope(pool, x, cosines, sines, int(pairing))


def dequantize(pool: WorkerPool, weight: Weight) -> Floats:
    """(rows, row_bytes) -> (rows, row_length)."""
    out = np.empty((weight.num_rows, weight.row_length), np.float32)
    _kernels.dequantize(pool, int(weight.type), weight.blocks, out)
    return out
