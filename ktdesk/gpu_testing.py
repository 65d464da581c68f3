"""What `ktdesk doctor --gpu` does: runs the self-test of an accelerator, and shows it as a table or as JSON."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from dataclasses import asdict
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from ktdesk.errors import UsageError
from ktdesk.exit_codes import ExitCode
from ktdesk.json_output import json_text
from ktdesk.terminal import Progress, on_one_line
from ktdesk_engine.config import ACCELERATORS
from ktdesk_wizard.gpu_test.outcome import Figure, GpuReport, Outcome, Status
from ktdesk_wizard.gpu_test.running import examine_accelerator
from ktdesk_wizard.probe.probe import probe
from ktdesk_wizard.prove.run import engine_build

NAME_WIDTH = 42
STATUS_WIDTH = 9
COUNTED: dict[Status, str] = {
    "ok": "right",
    "slow": "right, but slower than they should be",
    "failed": "failed",
    "skipped": "skipped",
    "untested": "not tested",
}
UNTESTED = (
    "Not tested, for the time was over: {}. Nothing is known of these. Run it again: kernels that were compiled are "
    "kept, and it gets further"
)


def examine_gpu(kind: str, folder: Path, *, as_json: bool) -> int:
    """Prints the report. folder: where models are kept. The exit code: whether something is wrong."""
    if kind not in ACCELERATORS:
        raise UsageError(f"--accelerator must be one of {', '.join(ACCELERATORS)}: {kind!r}")
    progress = Progress()

    def watch(outcome: Outcome) -> None:
        if as_json:
            progress.step(f"{outcome.status:{STATUS_WIDTH}}{outcome.check}")
        else:
            print("\n".join(outcome_lines(outcome)), flush=True)

    report = examine_accelerator(kind, watch)
    progress.finish()
    print(json_text(as_facts(report, folder)) if as_json else "\n".join(summary_lines(report)))
    if report.has_failed:
        return ExitCode.RESOURCES
    return ExitCode.INCOMPLETE if report.untested else ExitCode.OK


def as_facts(report: GpuReport, folder: Path) -> dict[str, Any]:
    facts = probe(folder)
    return {
        "ktdesk": engine_build(),
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "accelerator": report.accelerator,
        "signals_by": report.signals_by,
        "is_rehearsal": report.is_rehearsal,
        "machine": {
            "cpu": facts.cpu.name.value,
            "memory_bytes": facts.memory.total_bytes.value,
            "driver": facts.gpus.driver.value,
            "system": f"{platform.system()} {platform.release()}",
        },
        "seconds": round(report.seconds, 1),
        "counts": {status: report.num(status) for status in COUNTED},
        "is_complete": not report.untested,
        "checks": [asdict(outcome) for outcome in report.outcomes],
    }


def outcome_lines(outcome: Outcome) -> Iterator[str]:
    """One, and one more for the cause where there is one."""
    head = f"{outcome.status:{STATUS_WIDTH}}{outcome.check:{NAME_WIDTH}}"
    yield on_one_line(head + _figures_text(outcome.figures)).rstrip()
    if outcome.cause:
        yield on_one_line(f"{'':{STATUS_WIDTH}}{outcome.cause}")


def _figures_text(figures: tuple[Figure, ...]) -> str:
    """Of errors the largest."""
    errors = [figure.value for figure in figures if figure.name.endswith(": error")]
    texts = [f"largest error {max(errors):.1e}"] if errors else []
    texts += [_figure_text(figure) for figure in figures if not figure.name.endswith(": error")]
    return ", ".join(texts)


def _figure_text(figure: Figure) -> str:
    text = f"{figure.name} {figure.value:.3g} {figure.unit}".rstrip()
    if figure.is_reached:
        return text
    bound = f"at least {figure.at_least:g}" if figure.at_least is not None else f"at most {figure.at_most:g}"
    return f"{text} (should be {bound})"


def summary_lines(report: GpuReport) -> Iterator[str]:
    yield ""
    yield on_one_line(f"{report.accelerator}; flags are given by {report.signals_by}")
    if report.is_rehearsal:
        yield "A rehearsal on what is no GPU, with small sizes: its figures say nothing of one."
    if report.untested:
        yield on_one_line(UNTESTED.format(", ".join(report.untested)))
    told = [f"{report.num(status)} {text}" for status, text in COUNTED.items() if report.num(status)]
    yield f"{', '.join(told)}, in {report.seconds:.0f} s"
