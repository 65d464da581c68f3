"""Numbers of the scheduler, for those who watch it."""

from __future__ import annotations

from dataclasses import dataclass

from ktdesk_engine.prefix_cache.stats import CacheStats


@dataclass
class Counters:
    """Since the start."""

    num_finished: int = 0
    num_cancelled: int = 0
    num_refused: int = 0
    """Never waited: BusyError."""
    num_expired: int = 0
    """Their deadline passed."""
    num_failed: int = 0
    num_preempted: int = 0
    """Had to leave their place for an older request, and came back."""
    num_prompt_tokens: int = 0
    """Of requests whose turn came."""
    num_cached_tokens: int = 0
    """Of these, those that were not computed."""
    num_answer_tokens: int = 0
    num_decode_steps: int = 0
    num_decode_rows: int = 0
    """Tokens of these steps: rows / steps is the mean batch."""
    prefill_seconds: float = 0.0
    decode_seconds: float = 0.0
    longest_stall_seconds: float = 0.0
    """Between two tokens of an answer."""


@dataclass(frozen=True)
class SchedulerStats:
    num_waiting: int
    num_prefilling: int
    num_decoding: int
    prefill_tok_s: float
    """As measured lately, in large chunks; 0 before the first."""
    decode_step_seconds: float
    """As measured lately, for those who are decoding now, or one."""
    decode_weight_bytes_s: float | None
    """Read of the weights, in the last steps of which that is known; None: there was none."""
    counters: Counters
    cache: CacheStats
