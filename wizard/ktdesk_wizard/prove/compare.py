"""What was planned against what was measured, line by line."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from ktdesk_wizard.plan.corrections import NO_CORRECTIONS, Corrections
from ktdesk_wizard.plan.plan import Plan
from ktdesk_wizard.probe.machine_facts import MachineFacts
from ktdesk_wizard.prove.run import MeasuredRun

SAME_MOMENT = 0.05
"""By which bandwidth and peak may differ without a word."""


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


def moment_note(plan: Plan, facts: MachineFacts, run: MeasuredRun) -> str | None:
    """Why the plan said another speed before than the one that is held against the measurement: between both the
    machine became another, or the depth is. None where they are the same."""
    read, peak = facts.memory.read_bytes_s.value, facts.cpu.peak_ops_s.value
    if run.ceilings is None or not read or not peak or plan.decode.tok_s is None:
        return None
    now_read, now_peak = run.ceilings
    if max(abs(now_read / read - 1), abs(now_peak / peak - 1)) < SAME_MOMENT:
        return None
    speeds = [f"{p.what.split()[0]} {p.tok_s:,.1f}" for p in (plan.prefill, plan.decode) if p.tok_s is not None]
    return (
        f"before, {' and '.join(speeds)} tok/s were planned: for {_ceilings(read, peak)}, as kept of this machine; "
        f"beside the samples it did {_ceilings(now_read, now_peak)}, which is what is planned for here"
    )


def busy_run_note(run: MeasuredRun) -> str | None:
    """Why a speed may be far from its plan, where others computed meanwhile."""
    if not run.was_busy:
        return None
    return (
        f"while the model was measured, other processes used {run.busy_cores:.1f} of {run.num_threads} cores: they "
        "interrupt the model and the looks at bandwidth and peak that its plan is for, each in another way, so that "
        "both may be far apart; plans follow this run only as long as there is none of a quieter hour, and `ktdesk "
        "bench` measures again"
    )


def _ceilings(read: float, peak: float) -> str:
    return f"{read / 1e9:.1f} GB/s and {peak / 1e12:.2f} T a second"


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
