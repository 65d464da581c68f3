"""What `ktdesk bench` measured: as facts that can be stored, and compared with a stored run."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

from ktdesk.errors import UsageError
from ktdesk.planned_text import compared_facts
from ktdesk_engine.benchmark.conditions import Load, Machine
from ktdesk_engine.benchmark.samples import Row, Spread
from ktdesk_wizard.prove.compare import Compared

VERSION = 1
"""Of the stored form."""
SETTINGS = ("subject", "machine", "isa", "threads", "compute")
"""What makes two runs comparable."""


@dataclass(frozen=True)
class BenchReport:
    subject: str
    """The model, or the layer."""
    date: str
    machine: Machine
    isa: str
    threads: int
    compute: str
    repeat: int
    notes: tuple[str, ...]
    """What else there is to know about the subject, for people."""
    facts: Mapping[str, Any]
    """The same for programs."""
    load: Load
    rows: tuple[Row, ...]
    planned: tuple[Compared, ...] = ()
    """Of a model: what a plan says, beside what was measured."""

    @property
    def read_bytes_s(self) -> Spread:
        return Spread.of(sample.ceilings.read_bytes_s for row in self.rows for sample in row.samples)

    @property
    def peak_ops_s(self) -> dict[str, Spread]:
        """Of the peaks that rows are compared with."""
        names = sorted({row.work.peak for row in self.rows})
        samples = [sample for row in self.rows for sample in row.samples]
        return {name: Spread.of(sample.ceilings.peak_ops_s[name] for sample in samples) for name in names}


def as_facts(report: BenchReport) -> dict[str, Any]:
    return {
        "version": VERSION,
        "subject": report.subject,
        "date": report.date,
        "machine": asdict(report.machine),
        "isa": report.isa,
        "threads": report.threads,
        "compute": report.compute,
        "repeat": report.repeat,
        **report.facts,
        "planned": compared_facts(report.planned),
        "load": {**asdict(report.load), "is_busy": report.load.is_busy},
        "ceilings": {
            "read_bytes_s": asdict(report.read_bytes_s),
            "peak_ops_s": {name: asdict(peak) for name, peak in report.peak_ops_s.items()},
        },
        "rows": [_row_facts(row) for row in report.rows],
    }


def _row_facts(row: Row) -> dict[str, Any]:
    spreads = ("step_seconds", "tok_s", "read_bytes_s", "read_share", "ops_s", "peak_share", "times_floor")
    return {
        "name": row.name,
        **asdict(row.work),
        "step_weight_bytes": row.step_weight_bytes.median,
        **{name: asdict(getattr(row, name)) for name in spreads},
    }


class Ratio(NamedTuple):
    """A row of this run against the one of the same name in another."""

    name: str
    tok_s: float
    """Above 1: faster than then."""
    read_share: float
    peak_share: float


@dataclass(frozen=True)
class Comparison:
    path: Path
    date: str
    differences: tuple[str, ...]
    """Settings that are not the same."""
    ratios: tuple[Ratio, ...]
    missing: tuple[str, ...]
    """Rows that the stored run does not have."""


def read_stored(path: Path) -> dict[str, Any]:
    """What --json wrote. UsageError where it is something else."""
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
        _check_stored(stored)
    except FileNotFoundError:
        raise UsageError(f"--against {path}: no such file") from None
    except (ValueError, KeyError, TypeError):
        raise UsageError(f"--against {path}: this is not what `ktdesk bench --json` of this version writes") from None
    assert isinstance(stored, dict)
    return stored


def _check_stored(stored: Any) -> None:
    if stored["version"] != VERSION:
        raise ValueError(stored["version"])
    for key in ("date", *SETTINGS):
        stored[key]
    for row in stored["rows"]:
        medians = [row[name]["median"] for name in ("tok_s", "read_share", "peak_share")]
        if not isinstance(row["name"], str) or not all(isinstance(value, float) and value > 0 for value in medians):
            raise ValueError(row)


def compare(report: BenchReport, stored: Mapping[str, Any], path: Path) -> Comparison:
    """Row by row, those with the same name."""
    now, then = as_facts(report), {row["name"]: row for row in stored["rows"]}
    return Comparison(
        path=path,
        date=str(stored["date"]),
        differences=tuple(_differences(now, stored)),
        ratios=tuple(_ratio(row, then[row["name"]]) for row in now["rows"] if row["name"] in then),
        missing=tuple(row.name for row in report.rows if row.name not in then),
    )


def comparison_facts(comparison: Comparison) -> dict[str, Any]:
    return {
        "path": str(comparison.path),
        "date": comparison.date,
        "differences": list(comparison.differences),
        "ratios": [ratio._asdict() for ratio in comparison.ratios],
        "missing": list(comparison.missing),
    }


def _differences(now: Mapping[str, Any], then: Mapping[str, Any]) -> Sequence[str]:
    def shown(value: Any) -> str:
        return str(value["cpu"] if isinstance(value, dict) and "cpu" in value else value)

    return [f"{key} was {shown(then[key])}, is {shown(now[key])}" for key in SETTINGS if now[key] != then[key]]


def _ratio(now: Mapping[str, Any], then: Mapping[str, Any]) -> Ratio:
    def of(name: str) -> float:
        return float(now[name]["median"] / then[name]["median"])

    return Ratio(now["name"], of("tok_s"), of("read_share"), of("peak_share"))
