"""The self-test of an accelerator: right kernels pass, wrong ones are named, and what breaks ends nothing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from ktdesk_engine import kernels
from ktdesk_engine.backends.host_thread import HostSlots, HostThreadAccelerator
from ktdesk_engine.kernels.routing import Routes
from ktdesk_engine.quants.formats import WeightType
from ktdesk_wizard.gpu_test.outcome import Figure, GpuReport, Outcome
from ktdesk_wizard.gpu_test.running import all_checks, run_checks
from ktdesk_wizard.gpu_test.subject import REAL, SMALL, Check, SkippedError, Subject

SIZES = replace(SMALL, weight_types=(WeightType.Q4_K, WeightType.IQ2_XS, WeightType.IQ1_M), repeat=1, decode_steps=2)


@pytest.fixture
def subject() -> Iterator[Subject]:
    pool = kernels.worker_pool(1)
    accelerator = HostThreadAccelerator(pool)
    yield Subject("host-thread", accelerator, pool, SIZES)
    accelerator.close()


def report_of(subject: Subject, *names: str) -> GpuReport:
    """Those checks whose names begin so; all of them without names."""
    checks = [check for check in all_checks(subject) if check.name.startswith(names or "")]
    return run_checks(subject, checks, lambda outcome: None)


def failed(report: GpuReport) -> dict[str, str]:
    return {outcome.check: outcome.cause for outcome in report.outcomes if outcome.status == "failed"}


def test_all_of_it_runs_on_a_thread_of_the_host(subject: Subject) -> None:
    report = report_of(subject)
    assert failed(report) == {}
    assert report.is_rehearsal
    assert report.num("ok") == len(report.outcomes) > 35
    names = {figure.name for outcome in report.outcomes for figure in outcome.figures}
    assert {"to the device", "to the CPU", "a layer", "of what its memory gives", "worth it from"} <= names


WRONG = {
    "linear": ["products with Q4_K", "products with IQ2_XS"],
    "embed": ["products with"],
    "experts": ["experts, swiglu", "hybrid against the CPU, grouped queries"],
    "linear_per_head": ["a matrix for each head"],
    "rms_norm": ["norms"],
    "attention": ["attention, latent, Q8_0", "attention with sinks"],
    "add": ["sums, gates"],
    "gate": ["sums, gates"],
}


@pytest.mark.parametrize("operation", WRONG)
def test_an_operation_that_is_a_little_off_is_named(
    operation: str, subject: Subject, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = getattr(HostThreadAccelerator, operation)

    def later(self: HostThreadAccelerator, *arguments: Any, **named: Any) -> Any:
        """Once it is computed: the thread may not have come to it."""
        found = honest(self, *arguments, **named)
        self.synchronize()
        found *= 1.05
        return found

    monkeypatch.setattr(HostThreadAccelerator, operation, later)
    names = failed(report_of(subject, *WRONG[operation]))
    assert all(any(name.startswith(wanted) for name in names) for wanted in WRONG[operation])
    assert all("of the largest value" in cause or "NaN" in cause for cause in names.values())


def test_experts_that_are_put_into_the_wrong_slot_are_found(subject: Subject, monkeypatch: pytest.MonkeyPatch) -> None:
    honest = HostSlots.put
    monkeypatch.setattr(
        HostSlots, "put", lambda self, slot, layer, expert: honest(self, slot, layer, max(0, expert - 1))
    )
    assert "hybrid against the CPU, grouped queries" in failed(report_of(subject, "hybrid against"))


def test_routes_to_other_experts_are_found(subject: Subject, monkeypatch: pytest.MonkeyPatch) -> None:
    honest = HostThreadAccelerator.choose_experts

    def others(self: HostThreadAccelerator, *arguments: Any) -> Routes:
        routes = honest(self, *arguments)
        self.synchronize()
        routes.ids[:, :2] = routes.ids[:, 1::-1].copy()
        return routes

    monkeypatch.setattr(HostThreadAccelerator, "choose_experts", others)
    assert "other experts are chosen" in failed(report_of(subject, "routing, sigmoid"))["routing, sigmoid"]


def broken(subject: Subject) -> Iterator[Figure]:
    yield Figure("before", 1.0)
    raise RuntimeError("CUDA error:\nsomething")


def slow(subject: Subject) -> Iterator[Figure]:
    yield Figure("rate", 0.5, at_least=0.7)


def absent(subject: Subject) -> Iterator[Figure]:
    raise SkippedError("there is no room")
    yield


def test_what_breaks_is_told_with_its_cause_and_the_others_run(subject: Subject) -> None:
    seen: list[Outcome] = []
    checks = [Check("one", broken), Check("two", slow), Check("three", absent)]
    report = run_checks(subject, checks, seen.append)
    assert [(outcome.status, outcome.cause) for outcome in report.outcomes] == [
        ("failed", "RuntimeError: CUDA error: something"),
        ("slow", ""),
        ("skipped", "there is no room"),
    ]
    assert report.outcomes[0].figures == (Figure("before", 1.0),)
    assert seen == list(report.outcomes)
    assert report.has_failed


def test_no_check_begins_when_the_time_is_over(subject: Subject) -> None:
    report = run_checks(subject, [Check("one", broken)], lambda outcome: None, limit_seconds=-1)
    assert report.outcomes[0].status == "untested"
    assert "seconds were over" in report.outcomes[0].cause
    assert report.untested == ("one",)
    assert not report.has_failed


def test_every_format_is_among_the_products_and_proofs_come_before_figures(subject: Subject) -> None:
    names = [check.name for check in all_checks(replace(subject, sizes=REAL))]
    assert {f"products with {kind.name}" for kind in WeightType} <= set(names)
    assert names.index("hybrid against the CPU, grouped queries") < names.index("products with F32")
    assert names.index("a matrix for each head") < names.index("copies")


def test_a_rehearsal_asks_nothing_of_the_speed(subject: Subject) -> None:
    wish = Figure("rate", 0.1, at_least=0.7)
    assert subject.aim(wish).is_reached
    assert not replace(subject, is_rehearsal=False).aim(wish).is_reached
    assert not Figure("rate", float("nan"), at_least=0.7).is_reached
    assert not Figure("latency", 11, at_most=10).is_reached
