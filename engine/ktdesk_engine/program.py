"""A decode step, recorded once for each number of sequences and replayed: no Python between its operations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ktdesk_engine.batch import Batch
from ktdesk_engine.kernels import Floats, Ids, PagedContext
from ktdesk_engine.kv_cache import CachedSequence, KVCache
from ktdesk_engine.models.base import Decoder


class Logits(NamedTuple):
    values: Floats
    """(T, V), of tokens that there are."""
    num_not_finite: Ids
    """(1,): how many of them are no finite numbers."""


def logits_of(model: Decoder, hidden: Floats, vocab_size: int) -> Logits:
    """On the host, once the backend has synchronized.

    vocab_size: tokens there are. An embedding may have more rows, to fill it up.
    """
    values = model.lm_head(hidden)[:, :vocab_size]
    backend = model.backend
    return Logits(backend.download(values), backend.download(backend.count_not_finite(values)))


class DecodeProgram:
    """The step of so many sequences, one token each. Its batch has arrays of its own, which are overwritten."""

    def __init__(self, model: Decoder, cache: KVCache, vocab_size: int, num_sequences: int) -> None:
        self._model = model
        self._cache = cache
        self._vocab_size = vocab_size
        self._program = program = model.recorder()
        context = PagedContext(
            page_tables=program.ids(num_sequences, cache.max_pages),
            sequences=program.ids(num_sequences),
            positions=program.ids(num_sequences),
        )
        context.sequences[:] = range(num_sequences)
        self._batch = Batch(program.ids(num_sequences), context, is_decode=True)
        self._places: list[list[int]] = [[] for _ in range(num_sequences)]
        """What the page tables begin with."""
        self._logits: Logits | None = None

    @property
    def num_bytes(self) -> int:
        return self._program.num_bytes

    def run(self, sequences: Sequence[CachedSequence], token_ids: Sequence[int]) -> Logits:
        """Of the tokens, which are the last of their sequences. They hold until the next run.

        The first run records, and a failed one is the last.
        """
        self._take_in(sequences, token_ids)
        if self._logits is None:
            if not self._program.computes_while_recording:
                self._prepare()
            with self._program.recording():
                hidden = self._model.forward(self._batch.on(self._model.backend), self._cache)
                logits = logits_of(self._model, hidden, self._vocab_size)
            if not self._program.computes_while_recording:
                self._program.replay()
            self._logits = logits
        else:
            self._program.replay()
        self._model.backend.synchronize()
        return self._logits

    def _prepare(self) -> None:
        """The step once as it is: a device loads kernels and constants when they are first used, and a recording is
        no time for that."""
        self._model.forward(self._batch.on(self._model.backend), self._cache)
        self._model.backend.synchronize()

    def _take_in(self, sequences: Sequence[CachedSequence], token_ids: Sequence[int]) -> None:
        """One number after the other: for a few that is faster than by arrays."""
        batch = self._batch
        for row, (sequence, token_id) in enumerate(zip(sequences, token_ids, strict=True)):
            batch.token_ids[row] = token_id
            batch.positions[row] = sequence.length - 1
            places = self._cache.places(sequence.pages)
            if places != self._places[row]:
                self._places[row] = list(places)
                batch.context.page_tables[row, : len(places)] = places
