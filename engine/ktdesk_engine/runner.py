"""Tokens through the model: prompts in chunks, answers one at a time, several together, over the cache."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Protocol, TypeVar

import numpy as np

from ktdesk_engine.batch import Batch
from ktdesk_engine.errors import AcceleratorMemoryError, EngineError
from ktdesk_engine.kernels import Floats
from ktdesk_engine.kv_cache import CachedSequence, KVCache
from ktdesk_engine.models.base import Decoder
from ktdesk_engine.prefill_chunk import SMALLEST
from ktdesk_engine.program import DecodeProgram, Logits, logits_of

Computed = TypeVar("Computed")

MAX_PROGRAM_SEQUENCES = 16
"""More are computed together, but without a program: the time between operations is little then."""


class Upkeep(Protocol):
    """What is done between steps."""

    def prepare(self) -> None:
        """Before anything of a step is submitted: takes away what one that was broken off has left."""

    def between_steps(self) -> None:
        """After some, before others."""

    def make_room(self) -> bool:
        """Where an accelerator is out of memory. True: the step may be tried again, and programs are void."""


class Runner:
    """One model and its cache.

    What a sequence gives does not depend on those that it is computed with, but for the rounding of the kernels
    where the number of tokens chooses between them: in float32, and on vectors alone, it has the same bits.
    """

    def __init__(
        self,
        model: Decoder,
        cache: KVCache,
        prefill_chunk: int,
        vocab_size: int,
        use_programs: bool = True,
        upkeep: Upkeep | None = None,
    ) -> None:
        """vocab_size: tokens there are. use_programs: changes speed, never the result."""
        self._upkeep = upkeep
        self._model = model
        self._vocab_size = vocab_size
        self._cache = cache
        self._prefill_chunk = prefill_chunk
        self._max_program_sequences = MAX_PROGRAM_SEQUENCES if use_programs else 0
        self._programs: dict[int, DecodeProgram] = {}
        """By the number of sequences."""

    def prefill(
        self, sequence: CachedSequence, token_ids: Sequence[int], before_layer: Callable[[], None] = lambda: None
    ) -> Floats:
        """Adds tokens to a sequence; the logits (V,) of the token after them.

        before_layer: what it raises ends the prompt, of which the sequence then has no more than before.
        """
        length = sequence.length
        try:
            batches = list(self._batches(sequence, token_ids, self._prefill_chunk))
            for batch in batches[:-1]:
                self._with_room(partial(self._forward, batch, before_layer))
            return self._with_room(partial(self._last_logits, batches[-1], before_layer))
        except BaseException:
            sequence.length = length
            raise

    def all_logits(
        self, sequence: CachedSequence, token_ids: Sequence[int], as_decoded: bool = False
    ) -> Iterator[Floats]:
        """Adds tokens to a sequence; the logits (T, V) of the token after each, chunk by chunk.

        as_decoded: as a step for each would give them.
        """
        for batch in self._batches(sequence, token_ids, min(self._prefill_chunk, SMALLEST), as_decoded):
            yield self._with_room(partial(self._logits, batch))

    def decode(self, sequences: Sequence[CachedSequence], token_ids: Sequence[int]) -> Floats:
        """Adds a token to each of these different sequences; the logits (S, V) of the tokens after them.

        They hold until the next call.
        """
        if self._upkeep is not None:
            self._with_room(self._upkeep.between_steps)
        self._with_room(partial(self._cache.grow, sequences, 1))
        if len(sequences) <= self._max_program_sequences:
            return self._with_room(partial(self._by_program, sequences, token_ids))
        batch = Batch(np.array(token_ids, np.int32), self._cache.last_tokens(sequences), is_decode=True)
        return self._with_room(partial(self._logits, batch))

    def forget_programs(self) -> None:
        """They have addresses that are no more: steps are recorded anew."""
        self._programs.clear()

    def release(self, sequence: CachedSequence) -> None:
        """Gives the sequence's pages back."""
        self._cache.release(sequence)

    @property
    def busy_seconds(self) -> float:
        """In the operations of the model's backend, since it was made; the rest of the time is Python's."""
        return self._model.backend.busy_seconds

    @property
    def program_bytes(self) -> int:
        """Memory of the programs so far."""
        return sum(program.num_bytes for program in self._programs.values())

    def _by_program(self, sequences: Sequence[CachedSequence], token_ids: Sequence[int]) -> Floats:
        program = self._programs.pop(len(sequences), None)
        if program is None:
            program = DecodeProgram(self._model, self._cache, self._vocab_size, len(sequences))
        logits = program.run(sequences, token_ids)
        self._programs[len(sequences)] = program  # only now: one that failed is not used again
        return _checked(logits)

    def _batches(
        self, sequence: CachedSequence, token_ids: Sequence[int], size: int, as_decoded: bool = False
    ) -> Iterator[Batch]:
        """In chunks, each of which the cache makes room for when it is asked for."""
        for start in range(0, len(token_ids), size):
            chunk = np.array(token_ids[start : start + size], np.int32)
            yield Batch(chunk, self._with_room(partial(self._cache.extend, sequence, len(chunk))), as_decoded)

    def _with_room(self, compute: Callable[[], Computed]) -> Computed:
        """Where an accelerator is out of memory, once more with fewer experts on it. A step may be computed again: it
        writes to the cache what it wrote before."""
        try:
            with self._model.backend.failures():
                if self._upkeep is not None:
                    self._upkeep.prepare()
                return compute()
        except (AcceleratorMemoryError, MemoryError) as error:
            failure = error.with_traceback(None)  # whose frames hold arrays that must be free before there is room
            failure.__cause__ = failure.__context__ = None
        except BaseException:
            self._settle()
            raise
        self._programs.clear()  # first: making room may fail as well, half done
        with self._model.backend.failures():
            has_room = self._upkeep is not None and self._upkeep.make_room()
        if not has_room:
            raise failure
        return self._with_room(compute)

    def _settle(self) -> None:
        """Nothing of a step that was broken off may be written any more when its pages are somebody else's. What fails
        here too is told by the step after it."""
        if self._upkeep is not None:
            with suppress(EngineError, MemoryError):
                self._upkeep.prepare()

    def _forward(self, batch: Batch, before_layer: Callable[[], None] = lambda: None) -> Floats:
        """Places are looked up now: they may be others than when the batch was tried before."""
        placed = replace(batch, context=self._cache.placed(batch.context))
        return self._model.forward(placed.on(self._model.backend), self._cache, before_layer)

    def _logits(self, batch: Batch) -> Floats:
        """(T, V)"""
        return self._checked_logits(self._forward(batch))

    def _last_logits(self, batch: Batch, before_layer: Callable[[], None]) -> Floats:
        """(V,)"""
        return self._checked_logits(self._forward(batch, before_layer)[-1:])[0]

    def _checked_logits(self, hidden: Floats) -> Floats:
        logits = logits_of(self._model, hidden, self._vocab_size)
        self._model.backend.synchronize()
        return _checked(logits)


def _checked(logits: Logits) -> Floats:
    """EngineError where they are no numbers."""
    if logits.num_not_finite[0]:
        raise EngineError(
            "the model computed values that are not finite numbers: its weights are damaged (compare the file's "
            "checksum with the one where it came from, and fetch it again)"
        )
    return logits.values
