"""What was planned against what was measured, as facts and for people."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict
from typing import Any

from ktdesk.amounts import bytes_text
from ktdesk_wizard.prove.compare import Compared

LABEL_WIDTH = 26


def compared_facts(lines: Iterable[Compared]) -> list[dict[str, Any]]:
    return [{**asdict(line), "error": line.error} for line in lines]


def planned_lines(lines: Iterable[Compared]) -> Iterator[str]:
    yield f"{'':<{LABEL_WIDTH}}{'planned':>12}{'measured':>12}{'error':>9}"
    for line in lines:
        is_bytes = line.unit == "bytes"
        planned, measured = (
            bytes_text(value) if is_bytes else f"{value:,.1f}" for value in (line.planned, line.measured)
        )
        label = line.name if is_bytes else f"{line.name}, tok/s"
        corrected = "  corrected by earlier runs" if line.is_corrected else ""
        yield f"{label:<{LABEL_WIDTH}}{planned:>12}{measured:>12}{line.error:>+9.1%}{corrected}"
