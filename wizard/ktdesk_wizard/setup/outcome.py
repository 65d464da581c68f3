"""What a setup came to: the model's place and plan, predicted against measured, and the command to chat."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ktdesk_wizard.plan.plan import Plan
from ktdesk_wizard.prove.compare import Compared
from ktdesk_wizard.prove.run import MeasuredRun


@dataclass(frozen=True)
class Outcome:
    path: Path
    """The model."""
    plan: Plan
    run: MeasuredRun
    compared: tuple[Compared, ...]
    answer: str
    """That it gave to the first question."""
    command: tuple[str, ...]
    """To chat with it."""
    kept: Path
    """The file that all this was kept in."""
    remarks: tuple[str, ...] = ()
    """Why the plan before and the prediction at the end differ, and what was learnt of the machine."""
