"""A model that remembers: the tokens of a sequence lie in its pages, and the next one follows from all of them.

So a page that is not what it should be changes every token after it. Time passes only when it computes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import xxhash
from fake_pool import FakePool

from ktdesk_engine.errors import EngineError
from ktdesk_engine.kernels import Floats
from ktdesk_engine.kv_cache import PAGE_SIZE, CachedSequence

TOKEN_BYTES = 4
VOCAB_SIZE = 256
POISON = 255
"""A sequence that has this token cannot be computed."""


class FakeClock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def token_pool(num_pages: int) -> FakePool:
    return FakePool(num_pages, PAGE_SIZE * TOKEN_BYTES)


class FakeRunner:
    """Writes tokens into pages, and takes as long as it is told to."""

    def __init__(self, pool: FakePool, clock: FakeClock) -> None:
        self._pool = pool
        self._clock = clock
        self.fixed_seconds = 0.02
        self.token_seconds = 0.001
        self.pair_seconds = 0.0
        self.decode_seconds = 0.03
        self.on_layer: Callable[[], None] = lambda: None
        """Called when a layer of a prompt begins."""
        self.chunks: list[tuple[int, int]] = []
        """(position, tokens) of what was prefilled."""
        self.batches: list[int] = []
        """Sequences of each decode step."""

    def prefill(
        self, sequence: CachedSequence, token_ids: Sequence[int], before_layer: Callable[[], None] = lambda: None
    ) -> Floats:
        position = sequence.length
        self.chunks.append((position, len(token_ids)))
        num_pairs = len(token_ids) * (position + len(token_ids) / 2)
        self._clock.now += self.fixed_seconds + self.token_seconds * len(token_ids) + self.pair_seconds * num_pairs
        self.on_layer()
        before_layer()  # the last one: time has passed
        self._append(sequence, token_ids)
        return self._logits(sequence)

    def decode(self, sequences: Sequence[CachedSequence], token_ids: Sequence[int]) -> Floats:
        self._clock.now += self.decode_seconds
        self.batches.append(len(sequences))
        for sequence, token_id in zip(sequences, token_ids, strict=True):
            self._append(sequence, [token_id])
        return np.array([self._logits(sequence) for sequence in sequences])

    def _append(self, sequence: CachedSequence, token_ids: Sequence[int]) -> None:
        for token_id in token_ids:
            if sequence.length == len(sequence.pages) * PAGE_SIZE:
                sequence.pages.append(self._pool.take_page())
            self._tokens(sequence.pages[-1])[sequence.length % PAGE_SIZE] = token_id
            sequence.length += 1

    def _tokens(self, page: int) -> np.ndarray:
        return self._pool.contents[page].view(np.int32)

    def _logits(self, sequence: CachedSequence) -> Floats:
        tokens = np.concatenate([self._tokens(page) for page in sequence.pages])[: sequence.length]
        if POISON in tokens:
            raise EngineError("the values are not finite")
        logits = np.zeros(VOCAB_SIZE, np.float32)
        logits[next_token(tokens.tolist())] = 1
        return logits


def next_token(tokens: Sequence[int]) -> int:
    return xxhash.xxh32(np.array(tokens, np.int32).tobytes()).intdigest() % 250


def answer_to(prompt: Sequence[int], num_tokens: int) -> list[int]:
    """What a model without any cache says."""
    tokens = list(prompt)
    for _ in range(num_tokens):
        tokens.append(next_token(tokens))
    return tokens[len(prompt) :]
