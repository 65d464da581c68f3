"""Attention over the paged cache."""

from __future__ import annotations

from dataclasses import dataclass

from ktdesk_engine.kernels import _kernels
from ktdesk_engine.kernels.arrays import Blocks, Floats, Ids, new_floats
from ktdesk_engine.kernels.pools import WorkerPool
from ktdesk_engine.quants.formats import WeightType, row_bytes

CACHE_PADDING = 16


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

    The cache holds the tokens' own keys and values already. On tiles, in two bfloat16 with sums in float32, where a
    sequence has at least the pool's `min_tile_queries` (tokens, times heads to a head of keys) and the instruction
    set has tiles.
    """
    out = new_floats(pool, *queries.shape[:2], values.length)
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
