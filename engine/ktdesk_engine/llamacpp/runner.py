"""Tokens through a model of llama.cpp: prompts in chunks, answers one at a time, several together, over its pages."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Protocol

import numpy as np

from ktdesk_engine.errors import ContextOverflowError, EngineError
from ktdesk_engine.kernels import Floats
from ktdesk_engine.kv_cache import PAGE_SIZE, CachedSequence
from ktdesk_engine.llamacpp.pages import Cells, LlamaPages

MAX_ROWS = 64
"""Positions whose logits one call gives."""


class Computer(Cells, Protocol):
    """What computes. A sequence is an id."""

    def compute(
        self, sequences: Sequence[int], token_ids: Sequence[int], positions: Sequence[int], rows: Sequence[int]
    ) -> Floats:
        """Token t is that of its sequence at its position. rows: of these; their logits (R, V)."""


@dataclass
class Slot:
    """A sequence that runs, as llama.cpp has it."""

    sequence: CachedSequence
    id: int
    length: int = 0
    """Tokens that llama.cpp has of it."""
    pages: list[int] = field(default_factory=list)
    """The full ones, as llama.cpp has them."""


class LlamaRunner:
    """One model and its cells. A sequence without tokens has left: what llama.cpp still has of it goes by and by."""

    def __init__(self, computer: Computer, pages: LlamaPages, ids: range, context: int, largest_chunk: int) -> None:
        """ids: for sequences that run, none of a holder's."""
        self._computer = computer
        self._pages = pages
        self._ids = ids
        self._context = context
        self._largest_chunk = largest_chunk
        self._slots: list[Slot] = []
        self.busy_seconds = 0.0
        """In llama.cpp; the rest of the time is Python's."""

    def prefill(
        self, sequence: CachedSequence, token_ids: Sequence[int], before_layer: Callable[[], None] = lambda: None
    ) -> Floats:
        """Adds tokens to a sequence; the logits (V,) of the token after them. before_layer: called before each chunk,
        for llama.cpp shows no layers."""
        for chunk in _chunks(token_ids, self._largest_chunk):
            before_layer()
            logits = self._extend(sequence, chunk, [len(chunk) - 1])
        return logits[0]

    def all_logits(
        self, sequence: CachedSequence, token_ids: Sequence[int], *, as_decoded: bool = False
    ) -> Iterator[Floats]:
        """Adds tokens to a sequence; the logits (T, V) of the token after each, chunk by chunk. as_decoded: no matter
        here."""
        for chunk in _chunks(token_ids, min(MAX_ROWS, self._largest_chunk)):
            yield self._extend(sequence, chunk, range(len(chunk)))

    def decode(self, sequences: Sequence[CachedSequence], token_ids: Sequence[int]) -> Floats:
        """Adds a token to each of these different sequences; the logits (S, V) of the tokens after them."""
        slots = [self._slot_of(sequence, 1) for sequence in sequences]
        return self._compute(slots, [[token_id] for token_id in token_ids], range(len(slots)))

    def release(self, sequence: CachedSequence) -> None:
        """Gives the sequence's pages back."""
        for page in sequence.pages:
            self._pages.give_back(page)
        sequence.pages.clear()
        sequence.length = 0
        self._tidy()

    def _extend(self, sequence: CachedSequence, token_ids: Sequence[int], rows: Sequence[int]) -> Floats:
        return self._compute([self._slot_of(sequence, len(token_ids))], [token_ids], rows)

    def _compute(self, slots: Sequence[Slot], token_ids: Sequence[Sequence[int]], rows: Sequence[int]) -> Floats:
        """These tokens of each. Only once they are there do the sequences have them."""
        started = time.perf_counter()
        rows_of = list(zip(slots, token_ids, strict=True))
        ids = [slot.id for slot, new in rows_of for _ in new]
        positions = [slot.length + t for slot, new in rows_of for t in range(len(new))]
        try:
            logits = self._computer.compute(ids, [token_id for new in token_ids for token_id in new], positions, rows)
        except EngineError:
            for slot in slots:
                self._take_back(slot)
            raise
        finally:
            self.busy_seconds += time.perf_counter() - started
        for slot, new in rows_of:
            slot.length = slot.sequence.length = slot.length + len(new)
            self._hold_full_pages(slot)
        return _checked(logits)

    def _slot_of(self, sequence: CachedSequence, num_tokens: int) -> Slot:
        """Of a sequence, with room for so many tokens more."""
        self._tidy()
        length = sequence.length + num_tokens
        num_missing = -(-length // PAGE_SIZE) - len(sequence.pages)
        if length > self._context or num_missing > self._pages.num_free_pages:
            raise ContextOverflowError(
                f"{length} tokens do not fit the context of {self._context}: shorten the prompt, or start with a "
                "larger context"
            )
        slot = next((slot for slot in self._slots if slot.sequence is sequence), None) or self._new_slot(sequence)
        if slot.length != sequence.length:
            raise EngineError("llama.cpp lost what it had of this request: ask again")
        sequence.pages += [self._pages.take_page() for _ in range(num_missing)]
        return slot

    def _new_slot(self, sequence: CachedSequence) -> Slot:
        """For one that begins with pages of others, or with nothing."""
        used = {slot.id for slot in self._slots}
        free_id = next((slot_id for slot_id in self._ids if slot_id not in used), None)
        if free_id is None:
            raise EngineError(f"llama.cpp computes {len(self._ids)} requests at the same time: ask for fewer")
        slot = Slot(sequence, free_id)
        self._slots.append(slot)
        for page in takewhile(self._pages.is_held, sequence.pages):
            self._pages.lend(page, slot.id)
            slot.pages.append(page)
        slot.length = len(slot.pages) * PAGE_SIZE
        return slot

    def _tidy(self) -> None:
        """Sequences that left are gone, and those that run have the pages and the length that they should have."""
        for slot in [slot for slot in self._slots if slot.sequence.length == 0]:
            self._slots.remove(slot)
            self._computer.remove(slot.id)
        for slot in self._slots:
            if slot.sequence.length < slot.length:
                self._take_back(slot)
            self._exchange_pages(slot)

    def _take_back(self, slot: Slot) -> None:
        """What llama.cpp may have of it beyond its length."""
        slot.length = slot.sequence.length
        del slot.pages[slot.length // PAGE_SIZE :]
        try:
            self._computer.remove(slot.id, slot.length)
        except EngineError:
            slot.sequence.length = slot.length = 0
            raise

    def _exchange_pages(self, slot: Slot) -> None:
        """Where another sequence had the same page before, that one is everybody's."""
        for index, page in enumerate(slot.sequence.pages[: len(slot.pages)]):
            if slot.pages[index] != page:
                self._computer.remove(slot.id, index * PAGE_SIZE, (index + 1) * PAGE_SIZE)
                self._pages.lend(page, slot.id)
                slot.pages[index] = page

    def _hold_full_pages(self, slot: Slot) -> None:
        for index in range(len(slot.pages), slot.length // PAGE_SIZE):
            page = slot.sequence.pages[index]
            self._pages.hold(page, slot.id, index)
            slot.pages.append(page)


def _chunks(token_ids: Sequence[int], size: int) -> Iterator[Sequence[int]]:
    return (token_ids[start : start + size] for start in range(0, len(token_ids), size))


def _checked(logits: Floats) -> Floats:
    """EngineError where they are no numbers."""
    if not np.isfinite(logits).all():
        raise EngineError(
            "the model computed values that are not finite numbers: its weights are damaged (compare the file's "
            "checksum with the one where it came from, and fetch it again)"
        )
    return logits
