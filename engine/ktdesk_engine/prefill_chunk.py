"""How many tokens of a prompt are computed together.

A chunk reads every expert that one of its tokens uses. With few tokens of each, reading and unpacking take the time:
256 experts of which a token uses 8 see 16 tokens of a chunk of 512, and a prompt of 2,048 tokens took 23 % longer so
than in chunks of 1,024 (docs/performance.md). A larger chunk needs more memory for a layer side by side, and between
two tokens of those who answer it is cut short anyway.
"""

from __future__ import annotations

SMALLEST, LARGEST = 512, 2048
EXPERT_ROWS = 32
"""Tokens of a chunk that an expert should see on average: two blocks of rows on tiles."""


def decide_prefill_chunk(wish: int | None, num_experts: int, num_used: int, *, is_accelerated: bool = False) -> int:
    """A wish is kept. num_experts: 0 where there are none. is_accelerated: what a chunk needs is taken from an
    accelerator's memory, where experts could lie."""
    if wish is not None:
        return wish
    chunk = SMALLEST
    while not is_accelerated and chunk < LARGEST and chunk * num_used < EXPERT_ROWS * num_experts:
        chunk *= 2
    return chunk
