"""What `ktdesk doctor` does: examines this machine, shows what it found, and writes it down for others."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from importlib import metadata
from pathlib import Path
from textwrap import wrap
from typing import Any

from ktdesk.errors import UsageError
from ktdesk.json_output import json_text
from ktdesk.settings import Settings
from ktdesk.terminal import on_one_line
from ktdesk_wizard.doctor.checks import CHECKS
from ktdesk_wizard.doctor.diagnosis import Case, Check, Finding, examine
from ktdesk_wizard.doctor.redaction import redaction_here
from ktdesk_wizard.probe.facts_json import facts_to_json
from ktdesk_wizard.probe.measurement import measured_at, with_measurement
from ktdesk_wizard.probe.probe import probe
from ktdesk_wizard.prove.run import engine_build
from ktdesk_wizard.prove.store import load_runs

WIDTH = 80
PACKAGES = ("ktdesk", "numpy", "tokenizers", "huggingface_hub", "textual", "torch", "triton", "nvidia-ml-py")
"""Whose versions a report has, where they are installed."""
VARIABLES = (
    *("KTDESK_ISA", "KTDESK_PIN", "KTDESK_SOURCES", "HF_ENDPOINT", "HF_HUB_OFFLINE"),
    *("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"),
)
LAST_RUNS = 10


@dataclass(frozen=True)
class Diagnosis:
    case: Case
    findings: tuple[Finding, ...]
    runs: tuple[dict[str, Any], ...]
    """The last measured ones."""

    def as_facts(self) -> dict[str, Any]:
        return {"findings": [asdict(finding) for finding in self.findings]}


def diagnose(settings: Settings, checks: Sequence[Check] = CHECKS) -> Diagnosis:
    facts = probe(settings.models_folder)
    case = Case(
        facts=with_measurement(facts, settings.data_folder),
        now=datetime.now(timezone.utc),
        measured_at=measured_at(facts, settings.data_folder),
        environment={name: os.environ[name] for name in VARIABLES if name in os.environ},
    )
    runs = tuple(asdict(run) for run in load_runs(settings.data_folder)[-LAST_RUNS:])
    return Diagnosis(case, examine(case, checks), runs)


def as_text(diagnosis: Diagnosis) -> str:
    if not diagnosis.findings:
        return "Nothing is wrong or slow here, as far as can be seen."
    return "\n\n".join("\n".join(_lines(finding)) for finding in diagnosis.findings)


def _lines(finding: Finding) -> Iterator[str]:
    head = on_one_line(f"{finding.severity}: {finding.title}")
    yield from wrap(head, WIDTH, subsequent_indent="  ", break_on_hyphens=False)
    for evidence in finding.evidence:
        yield from _indented("seen", f"{evidence.value}  [{evidence.source}]")
    yield from _indented("do", finding.fix)


def _indented(label: str, text: str) -> Iterator[str]:
    first, rest = f"  {label:<6}", " " * 8
    yield from wrap(
        on_one_line(text),
        WIDTH,
        initial_indent=first,
        subsequent_indent=rest,
        break_on_hyphens=False,
        break_long_words=False,
    )


def write_bundle(diagnosis: Diagnosis, path: Path) -> None:
    """Redacted. UsageError where the file is there already or cannot be written."""
    report = {
        "ktdesk": engine_build(),
        "date": diagnosis.case.now.isoformat(timespec="minutes"),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "packages": dict(_versions()),
        "environment": diagnosis.case.environment,
        **diagnosis.as_facts(),
        "facts": facts_to_json(diagnosis.case.facts),
        "runs": diagnosis.runs,
    }
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(json_text(redaction_here().value(report)) + "\n")
    except FileExistsError:
        kind = "a folder: name a file in it" if path.is_dir() else "there already: name another"
        raise UsageError(f"--bundle {path}: it is {kind}") from None
    except OSError as error:
        raise UsageError(f"--bundle {path}: it cannot be written: {error.strerror or error}") from None


def _versions() -> Iterator[tuple[str, str]]:
    installed = {(each.name or "").lower().replace("_", "-"): each.version for each in metadata.distributions()}
    for package in PACKAGES:
        version = installed.get(package.replace("_", "-"))
        if version is not None:
            yield package, version
