"""What plans rest on: whether this machine was measured, when, and how well."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from ktdesk_wizard.doctor.diagnosis import Case, Evidence, Finding, evidence
from ktdesk_wizard.probe.measurement import was_busy, was_hurried

OLD = timedelta(days=90)


def calibration(case: Case) -> Iterator[Finding]:
    read, cpu = case.facts.memory.read_bytes_s, case.facts.cpu
    if was_busy(case.facts):
        yield Finding(
            "busy-measurement",
            "slow",
            "this machine was measured while others computed: plans may be several times too low",
            (evidence(cpu.busy_cores, lambda cores: f"other processes used {cores:.1f} cores"),),
            "when it is quiet: ktdesk probe --measure",
        )
    elif was_hurried(case.facts):
        yield Finding(
            "hurried-measurement",
            "note",
            "there was not time for all turns when this machine was measured: plans are less certain",
            (evidence(cpu.turns_share, lambda share: f"{share:.0%} of the usual turns"),),
            "ktdesk probe --measure",
        )
    if case.measured_at is None:
        yield Finding(
            "not-measured",
            "note",
            "this machine was not measured: speeds of plans are looked up, or unknown",
            (Evidence("none for this processor, threads and version", "measured.json of the data folder"),),
            "ktdesk probe --measure",
        )
    elif case.now - case.measured_at > OLD:
        days = (case.now - case.measured_at).days
        yield Finding(
            "old-measurement",
            "note",
            f"this machine was measured {days} days ago",
            (Evidence(f"{case.measured_at:%Y-%m-%d}", read.source),),
            "ktdesk probe --measure",
        )
