"""`examine`: runs the checks over what is known of a machine. Another check is one more function in a list.

A check knows a `Case` and yields findings; it reads nothing itself, so that captured machines can be examined too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, TypeVar

from ktdesk_wizard.probe.fact import Fact
from ktdesk_wizard.probe.machine_facts import MachineFacts

Severity = Literal["wrong", "slow", "note"]
SEVERITIES: tuple[Severity, ...] = ("wrong", "slow", "note")
"""wrong: something will not work. slow: it works, and could be faster. note: worth knowing, and maybe meant so."""
T = TypeVar("T")


@dataclass(frozen=True)
class Evidence:
    value: str
    source: str


@dataclass(frozen=True)
class Finding:
    id: str
    """For programs; it stays the same."""
    severity: Severity
    title: str
    evidence: tuple[Evidence, ...]
    fix: str
    """What to do; a command where there is one. Those that need root say so."""


@dataclass(frozen=True)
class Case:
    """What checks look at."""

    facts: MachineFacts
    """With measurements, if there are any."""
    now: datetime
    measured_at: datetime | None = None
    """Of the measurements that are kept; None where there are none for this machine."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables of the process."""


Check = Callable[[Case], Iterator[Finding]]


def examine(case: Case, checks: Sequence[Check]) -> tuple[Finding, ...]:
    """The worst first, in the order of the checks."""
    found = [finding for check in checks for finding in check(case)]
    return tuple(sorted(found, key=lambda finding: SEVERITIES.index(finding.severity)))


def evidence(fact: Fact[T], shown: Callable[[T], str] = str) -> Evidence:
    """Of a fact that is known."""
    assert fact.value is not None
    return Evidence(shown(fact.value), fact.source)


def has_trouble(findings: Iterable[Finding]) -> bool:
    """Whether something will not work."""
    return any(finding.severity == "wrong" for finding in findings)
