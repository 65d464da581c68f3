"""What was planned against what was measured, line by line."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from ktdesk_wizard.plan.corrections import NO_CORRECTIONS, Corrections
from ktdesk_wizard.prove.run import MeasuredRun


@dataclass(frozen=True)
class Compared:
    name: str
    unit: Literal["bytes", "tok/s"]
    planned: float
    """For the bandwidth and the peak that were measured beside the samples."""
    measured: float
    is_corrected: bool
    """Planned with earlier runs of the same model."""

    @property
    def error(self) -> float:
        """Of the plan: 0.1 is a tenth too much."""
        return self.planned / self.measured - 1


def compared(run: MeasuredRun, earlier: Corrections = NO_CORRECTIONS) -> Iterator[Compared]:
    """Memory, and every speed."""
    if run.memory is not None:
        difference = earlier.memory_bytes()
        planned = run.memory.planned_bytes + (difference[0] if difference else 0)
        yield Compared("memory", "bytes", planned, run.memory.peak_bytes, difference is not None)
    for speed in run.speeds:
        if speed.planned_tok_s is not None:
            factor = earlier.factor(speed.phase, speed.depth)
            name = f"{speed.phase} {speed.num_tokens} at {speed.depth}"
            yield Compared(name, "tok/s", speed.planned_tok_s * (factor or 1), speed.tok_s, factor is not None)
