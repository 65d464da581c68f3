"""How many tokens of a prompt are computed together.

A chunk reads every expert that one of its tokens uses. With few tokens of each, reading and unpacking take the time,
and blocks of rows are half empty: of 128 experts of which a token uses 8, each sees 32 tokens of a chunk of 512, and a
prompt of 2,048 tokens takes a fifth less time in one piece (docs/performance.md). Vectors multiply a few rows as well
as many and gain nothing. A larger chunk needs more memory for a layer side by side. Between two tokens of those who
answer it is cut short anyway.
"""

from __future__ import annotations

from dataclasses import dataclass

from ktdesk_engine.config import Compute

SMALLEST, LARGEST = 512, 2048
EXPERT_ROWS = 128
"""Tokens of a chunk that an expert should see on average."""
ON_TILES: tuple[Compute, ...] = ("mixed", "bf16")
"""Where a machine has tiles."""
MEMORY_SHARE = 0.1
"""Of the memory that weights leave, for what a chunk needs."""
TOKEN_BYTES = 6
"""Of each number: float32, and the byte forms of what is multiplied, which are half as much."""


@dataclass(frozen=True)
class ExpertSizes:
    """Of a layer with experts; all of a model are alike."""

    num_experts: int
    num_used: int
    hidden: int
    width: int

    @property
    def token_bytes(self) -> int:
        """That a token of a chunk needs."""
        return TOKEN_BYTES * (4 * self.hidden + self.num_used * (2 * self.width + self.hidden))


def decide_prefill_chunk(wish: int | None, experts: ExpertSizes | None, left_bytes: int) -> int:
    """A wish is kept. experts: None where there are none, where they are computed on vectors, or where a larger chunk
    takes from an accelerator's memory, in which experts could lie. left_bytes: of memory, beside the weights."""
    if wish is not None:
        return wish
    chunk = SMALLEST
    while experts is not None and chunk < LARGEST and chunk * experts.num_used < EXPERT_ROWS * experts.num_experts:
        if 2 * chunk * experts.token_bytes > MEMORY_SHARE * left_bytes:
            break
        chunk *= 2
    return chunk
