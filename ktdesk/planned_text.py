"""What was planned against what was measured, as facts and for people."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ktdesk.amounts import bytes_text
from ktdesk_wizard.plan.corrections import NO_CORRECTIONS, Corrections
from ktdesk_wizard.prove.run import MeasuredRun

LABEL_WIDTH = 26


def planned_facts(run: MeasuredRun, earlier: Corrections = NO_CORRECTIONS) -> list[dict[str, Any]]:
    """A line each for memory and for every speed. planned: by earlier runs of the model too, where there are any.
    error: planned by measured, less 1."""
    facts: list[dict[str, Any]] = []
    if run.memory is not None:
        difference = earlier.memory_bytes()
        planned = run.memory.planned_bytes + (difference[0] if difference else 0)
        facts.append(_fact("memory", "bytes", planned, run.memory.peak_bytes, difference is not None))
    for speed in run.speeds:
        if speed.planned_tok_s is not None:
            name = f"{speed.phase} {speed.num_tokens} at {speed.depth}"
            factor = earlier.factor(speed.phase, speed.depth)
            facts.append(_fact(name, "tok/s", speed.planned_tok_s * (factor or 1), speed.tok_s, factor is not None))
    return facts


def _fact(name: str, unit: str, planned: float, measured: float, is_corrected: bool) -> dict[str, Any]:
    return {
        "name": name,
        "unit": unit,
        "planned": planned,
        "measured": measured,
        "error": planned / measured - 1,
        "corrected": is_corrected,
    }


def planned_lines(facts: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Planned for the bandwidth and the peak that were measured beside the samples."""
    yield f"{'':<{LABEL_WIDTH}}{'planned':>12}{'measured':>12}{'error':>9}"
    for fact in facts:
        is_bytes = fact["unit"] == "bytes"
        planned, measured = (
            bytes_text(fact[key]) if is_bytes else f"{fact[key]:,.1f}" for key in ("planned", "measured")
        )
        corrected = "  corrected by earlier runs" if fact["corrected"] else ""
        label = fact["name"] if is_bytes else f"{fact['name']}, tok/s"
        yield f"{label:<{LABEL_WIDTH}}{planned:>12}{measured:>12}{fact['error']:>+9.1%}{corrected}"
