"""The operations of a layer on the CPU: the extension's kernels on numpy arrays."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

from ktdesk_engine import kernels
from ktdesk_engine.backends.backend import AnyArray
from ktdesk_engine.backends.host_memory import HostMemory
from ktdesk_engine.kernels import (
    AttentionRule,
    CachedRows,
    Doubles,
    ExpertMlp,
    Floats,
    Ids,
    PagedContext,
    RopePairing,
    Turns,
    Weight,
    WorkerPool,
)
from ktdesk_engine.kernels.programs import Program
from ktdesk_engine.kernels.routing import Counts, Routes, RoutingRule, choose_experts
from ktdesk_engine.kernels.sampling import count_not_finite


class CpuBackend(HostMemory):
    """Computes on the threads of one pool."""

    def __init__(self, pool: WorkerPool) -> None:
        self.pool = pool

    def program(self) -> Program:
        """An empty one, for operations of this backend."""
        return Program(self.pool)

    @property
    def busy_seconds(self) -> float:
        """In operations, since the pool was made."""
        return self.pool.busy_seconds

    def upload(self, ids: Ids) -> Ids:
        """They are where they are needed."""
        return ids

    def download(self, values: AnyArray) -> AnyArray:
        """They are where they are needed."""
        return values

    def synchronize(self) -> None:
        """An operation is done when its call returns."""

    def failures(self) -> AbstractContextManager[None]:
        """There are none of its own."""
        return nullcontext()

    def embed(self, embeddings: Weight, token_ids: Ids) -> Floats:
        """(T,) -> (T, H)."""
        return kernels.get_rows(self.pool, embeddings, token_ids)

    def linear(self, weight: Weight, x: Floats, bias: Floats | None = None) -> Floats:
        """(T, row_length) -> (T, rows)."""
        return kernels.linear(self.pool, weight, x, bias)

    def linear_per_head(self, weight: Weight, x: Floats) -> Floats:
        """(T, heads, row_length) -> (T, heads, rows), a matrix for each head."""
        return kernels.linear_per_head(self.pool, weight, x)

    def rms_norm(self, x: Floats, weight: Floats, epsilon: float) -> Floats:
        """Over the last axis."""
        return kernels.rms_norm(self.pool, x, weight, epsilon)

    def rms_norm_in_place(self, x: Floats, weight: Floats, epsilon: float) -> None:
        """x (T, length), which may be some columns of a wider array."""
        kernels.rms_norm_in_place(self.pool, x, weight, epsilon)

    def add(self, x: Floats, y: Floats) -> Floats:
        """(T, H) each."""
        return kernels.add(self.pool, x, y)

    def gate(self, x: Floats, gates: Floats) -> Floats:
        """x (T, H) times the sigmoids of gates (T, 1)."""
        return kernels.gate(self.pool, x, gates)

    def join_heads(self, first: Floats, second: Floats) -> Floats:
        """(T, heads, A) and (T, heads, B) -> (T, heads, A + B)."""
        return kernels.join_heads(self.pool, first, second)

    def turns(self, positions: Ids, frequencies: Doubles, magnitude: float) -> Turns:
        """Of positions (T,), for `rope`."""
        return kernels.turns(self.pool, positions, frequencies, magnitude)

    def rope(self, x: Floats, cosines: Floats, sines: Floats, pairing: RopePairing) -> None:
        """In place; x (T, heads, D)."""
        kernels.rope(self.pool, x, cosines, sines, pairing)

    def store_rows(self, rows: CachedRows, context: PagedContext, x: Floats) -> None:
        """Writes x (T, heads, D) to where the tokens stand."""
        kernels.store_rows(self.pool, rows, context, x)

    def attention(
        self, queries: Floats, keys: CachedRows, values: CachedRows, context: PagedContext, rule: AttentionRule
    ) -> Floats:
        """(T, heads, D) -> (T, heads, value D)."""
        return kernels.attention(self.pool, queries, keys, values, context, rule)

    def choose_experts(
        self, logits: Floats, rule: RoutingRule, selection_bias: Floats | None, counts: Counts | None = None
    ) -> Routes:
        """logits (T, E) -> (T, K) each. counts (E,) grow by one for each token of an expert."""
        return choose_experts(self.pool, logits, rule, selection_bias, counts)

    def experts(self, mlp: ExpertMlp, x: Floats, ids: Ids, weights: Floats) -> Floats:
        """(T, H) -> (T, H), the weighted sum over each token's experts."""
        return kernels.expert_mlp(self.pool, mlp, x, ids, weights)

    def mlp(self, mlp: ExpertMlp, x: Floats) -> Floats:
        """(T, H) -> (T, H) through the only expert."""
        return kernels.only_expert_mlp(self.pool, mlp, x)

    def count_not_finite(self, values: Floats) -> Ids:
        """(1,): how many of values (T, V), which may be some columns of a wider array, are no finite numbers."""
        return count_not_finite(self.pool, values)
