"""What every device computes: the operations of a layer, on arrays of its own.

Annotated as numpy's arrays. A backend whose arrays are another library's takes and gives those; they have a
shape, can be reshaped and sliced, and a layer does nothing else with them.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeVar

import numpy as np

from ktdesk_engine.kernels import (
    AttentionRule,
    Blocks,
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
from ktdesk_engine.kernels.routing import Counts, Routes, RoutingRule

AnyArray = TypeVar("AnyArray", bound=np.ndarray[Any, Any])


class Recorder(Protocol):
    """Operations recorded once and replayed over the same memory."""

    def ids(self, *shape: int) -> Ids:
        """Zeros on the host, to be overwritten before each run."""

    @property
    def computes_while_recording(self) -> bool:
        """Whether the recording is a run too; else a replay has to follow."""

    def recording(self) -> AbstractContextManager[None]:
        """Operations inside are taken up."""

    def replay(self) -> None:
        """All operations again. On a device they have only begun when it returns: see `Backend.synchronize`."""

    @property
    def num_bytes(self) -> int:
        """Of the memory that they read and write, but for weights and cache."""


class Backend(Protocol):
    """Shapes as in backends/cpu.py, which says more of each operation."""

    @property
    def pool(self) -> WorkerPool:
        """The CPU's threads: those that compute, or that prepare what a device computes with."""

    @property
    def busy_seconds(self) -> float:
        """In operations, since it was made; the rest of the time is Python's."""

    def program(self) -> Recorder: ...

    def upload(self, ids: Ids) -> Ids:
        """As the operations take it. Of a recorder's `ids`, inside `recording`: what they have in each replay."""

    def download(self, values: AnyArray) -> AnyArray:
        """On the host, once `synchronize` or a replay has returned."""

    def synchronize(self) -> None:
        """Returns when all operations up to now are done; raises what one of them failed with."""

    def failures(self) -> AbstractContextManager[None]:
        """Around operations: what the device raises of its own comes out as an error of the engine's."""

    def cache_memory(self, *shape: int) -> Blocks:
        """Bytes for keys or values, not yet filled."""

    def read_memory(self, memory: Blocks) -> Blocks:
        """A copy of some of them on the host, (bytes,)."""

    def write_memory(self, memory: Blocks, content: Blocks) -> None:
        """content: of the host, as many bytes."""

    def embed(self, embeddings: Weight, token_ids: Ids) -> Floats: ...

    def linear(self, weight: Weight, x: Floats, bias: Floats | None = None) -> Floats: ...

    def linear_per_head(self, weight: Weight, x: Floats) -> Floats: ...

    def rms_norm(self, x: Floats, weight: Floats, epsilon: float) -> Floats: ...

    def rms_norm_in_place(self, x: Floats, weight: Floats, epsilon: float) -> None: ...

    def add(self, x: Floats, y: Floats) -> Floats: ...

    def gate(self, x: Floats, gates: Floats) -> Floats: ...

    def join_heads(self, first: Floats, second: Floats) -> Floats: ...

    def turns(self, positions: Ids, frequencies: Doubles, magnitude: float) -> Turns: ...

    def rope(self, x: Floats, cosines: Floats, sines: Floats, pairing: RopePairing) -> None: ...

    def store_rows(self, rows: CachedRows, context: PagedContext, x: Floats) -> None: ...

    def attention(
        self, queries: Floats, keys: CachedRows, values: CachedRows, context: PagedContext, rule: AttentionRule
    ) -> Floats: ...

    def choose_experts(
        self, logits: Floats, rule: RoutingRule, selection_bias: Floats | None, counts: Counts | None = None
    ) -> Routes: ...

    def experts(self, mlp: ExpertMlp, x: Floats, ids: Ids, weights: Floats) -> Floats: ...

    def mlp(self, mlp: ExpertMlp, x: Floats) -> Floats: ...

    def count_not_finite(self, values: Floats) -> Ids: ...
