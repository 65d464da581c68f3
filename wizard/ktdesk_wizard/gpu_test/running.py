"""Runs the checks one after the other: what breaks is reported with its cause, and the others go on."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from ktdesk_engine import kernels
from ktdesk_engine.accelerators import open_accelerator
from ktdesk_engine.config import AcceleratorKind
from ktdesk_engine.machine import thread_places
from ktdesk_wizard.gpu_test.layer_checks import layer_checks
from ktdesk_wizard.gpu_test.link_checks import link_checks
from ktdesk_wizard.gpu_test.model_checks import model_proofs, model_timings
from ktdesk_wizard.gpu_test.outcome import Figure, GpuReport, Outcome
from ktdesk_wizard.gpu_test.product_checks import product_checks
from ktdesk_wizard.gpu_test.subject import REAL, SMALL, Check, Sizes, SkippedError, Subject, WrongResultError

LIMIT_SECONDS = 280.0
"""No check begins later: all is over within five minutes."""

Watch = Callable[[Outcome], None]


def examine_accelerator(kind: AcceleratorKind, watch: Watch, sizes: Sizes | None = None) -> GpuReport:
    """AcceleratorError where there is none. What is no GPU is tested with small sizes, as a rehearsal."""
    is_rehearsal = kind != "cuda"
    places = thread_places()
    pool = kernels.worker_pool(len(places), None, places)
    accelerator = open_accelerator(kind, pool, None)
    assert accelerator is not None
    subject = Subject(kind, accelerator, pool, sizes or (SMALL if is_rehearsal else REAL), is_rehearsal)
    try:
        return run_checks(subject, all_checks(subject), watch)
    finally:
        accelerator.close()


def all_checks(subject: Subject) -> list[Check]:
    """Proofs before figures, and of the proofs the cheap ones first: where kernels have to be compiled the time may not
    suffice for all, and a wrong result matters more than a rate."""
    proofs = [*layer_checks(), *model_proofs(), *product_checks(subject)]
    return [*proofs, *link_checks(), *model_timings()]


def run_checks(
    subject: Subject, checks: Sequence[Check], watch: Watch, limit_seconds: float = LIMIT_SECONDS
) -> GpuReport:
    started = time.perf_counter()
    outcomes = []
    for check in checks:
        if time.perf_counter() - started > limit_seconds:
            outcomes.append(Outcome(check.name, "untested", cause=f"{limit_seconds:.0f} seconds were over"))
        else:
            outcomes.append(_outcome(subject, check))
        watch(outcomes[-1])
    device = subject.accelerator
    seconds = time.perf_counter() - started
    return GpuReport(device.name, device.signals_by, subject.is_rehearsal, tuple(outcomes), seconds)


def _outcome(subject: Subject, check: Check) -> Outcome:
    started = time.perf_counter()
    figures: list[Figure] = []

    def outcome(cause: str = "", *, skipped: bool = False) -> Outcome:
        is_slow = not all(figure.is_reached for figure in figures)
        status = "skipped" if skipped else "failed" if cause else "slow" if is_slow else "ok"
        return Outcome(check.name, status, tuple(figures), cause, time.perf_counter() - started)  # type: ignore[arg-type]

    try:
        with subject.accelerator.failures():
            figures.extend(check.run(subject))
    except SkippedError as reason:
        return outcome(str(reason), skipped=True)
    except WrongResultError as error:
        return outcome(str(error))
    except Exception as error:  # whatever it is: the others tell more
        return outcome(f"{type(error).__name__}: {' '.join(str(error).split())}")
    return outcome()
