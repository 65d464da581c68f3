"""Both ends of a model: token ids to vectors, and vectors to logits."""

from __future__ import annotations

from collections.abc import Callable

from ktdesk_engine.kernels import Floats, Ids, Weight
from ktdesk_engine.weights import Weights


class Embedding:
    """`token_embd`, which is the head too where the file has no `output.weight` (tied)."""

    def __init__(self, weights: Weights, hidden: int) -> None:
        self._backend = weights.backend
        self.vocab_size = weights.num_rows("token_embd.weight")
        self._embeddings = weights.matrix("token_embd.weight", self.vocab_size, hidden)
        tied = not weights.has("output.weight")
        self._head = self._embeddings if tied else weights.matrix("output.weight", self.vocab_size, hidden)
        self._head_bias = weights.bias("output.bias", self.vocab_size)
        weights.packables.append(self)

    def packable_weights(self) -> list[Weight]:
        """The head. Of the embedding single rows are read, where they lie in the file."""
        return [self._head]

    def pack(self, packed: Callable[[Weight], Weight]) -> None:
        self._head = packed(self._head)

    def __call__(self, token_ids: Ids) -> Floats:
        """(T,) -> (T, H)."""
        return self._backend.embed(self._embeddings, token_ids)

    def logits(self, hidden: Floats) -> Floats:
        """(T, H) -> (T, V)."""
        return self._backend.linear(self._head, hidden, self._head_bias)
