"""How much of a prompt is computed between two tokens of those who are answering."""

from __future__ import annotations

from ktdesk_engine.scheduler.cost import CostMeter
from ktdesk_engine.scheduler.forecast import SMALLEST_CHUNK, Speeds


class Pace:
    """Learns how long chunks and steps take. Knows no clock."""

    def __init__(self, max_stall_seconds: float, largest_chunk: int) -> None:
        self._max_stall_seconds = max_stall_seconds
        self._largest_chunk = largest_chunk
        self._tried_chunk = min(SMALLEST_CHUNK, largest_chunk)
        """The largest beside streams: at first small, then twice what was measured to fit."""
        self._prefill = CostMeter()
        self._decode = CostMeter()
        self.speeds = self._measured()
        """Replaced as a whole: any thread may read it."""

    def chunk(self, position: int, num_streams: int, seconds_left: float) -> int:
        """Prompt tokens from a position on that are done in time; 0 where none are. Without streams no one waits."""
        if num_streams == 0:
            return self._largest_chunk
        return self.speeds.prefill.largest_step(seconds_left, position, self._tried_chunk)

    def seconds_left(self, num_streams: int, waited_seconds: float) -> float:
        """For prompts, where the first of so many streams has waited so long for its next token."""
        return self.speeds.chunk_seconds(num_streams) - waited_seconds

    def prefilled(self, num_tokens: int, position: int, num_streams: int, seconds: float) -> None:
        """A chunk was computed beside so many streams."""
        self._prefill.observe(num_tokens, position, seconds)
        if num_streams:
            self._try_another_chunk(num_tokens, seconds > self.speeds.chunk_seconds(num_streams))
        self.speeds = self._measured()

    def decoded(self, num_streams: int, seconds: float) -> None:
        self._decode.observe(num_streams, 0, seconds)
        self.speeds = self._measured()

    def _try_another_chunk(self, num_tokens: int, was_too_long: bool) -> None:
        if was_too_long:
            self._tried_chunk = max(min(SMALLEST_CHUNK, self._largest_chunk), num_tokens // 2)
        elif num_tokens == self._tried_chunk:
            self._tried_chunk = min(2 * num_tokens, self._largest_chunk)

    def _measured(self) -> Speeds:
        return Speeds(self._prefill.cost, self._decode.cost, self._max_stall_seconds, self._largest_chunk)
