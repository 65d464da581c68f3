"""A decode step, recorded once for each number of sequences and replayed: no Python between its operations."""

from __future__ import annotations

from ktdesk_engine.batch import Batch
from ktdesk_engine.kernels import Floats, PagedContext
from ktdesk_engine.kv_cache import KVCache
from ktdesk_engine.models.base import Decoder


class DecodeProgram:
    """The step of so many sequences, one token each. Its batch has arrays of its own, which are overwritten."""

    def __init__(self, model: Decoder, cache: KVCache, num_sequences: int) -> None:
        self._model = model
        self._cache = cache
        self._program = program = model.backend.program()
        context = PagedContext(
            page_tables=program.ids(num_sequences, cache.max_pages),
            sequences=program.ids(num_sequences),
            positions=program.ids(num_sequences),
        )
        self._batch = Batch(program.ids(num_sequences), context)
        self._logits: Floats | None = None

    @property
    def num_bytes(self) -> int:
        return self._program.num_bytes

    def run(self, batch: Batch) -> Floats:
        """Logits (S, V), which hold until the next run. The first run records, and a failed one is the last."""
        for own, given in zip(self._batch.arrays, batch.arrays, strict=True):
            own[:] = given
        if self._logits is None:
            with self._program.recording():
                self._logits = self._model.logits(self._batch, self._cache)
        else:
            self._program.replay()
        return self._logits
