"""What measured runs say about plans: how much faster or slower, larger or smaller models really are.

Runs of the same model on this machine and build count; without one, those of other models, which say less.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import median

from ktdesk_engine.prefill_chunk import SMALLEST
from ktdesk_wizard.plan.model import PlannedModel
from ktdesk_wizard.plan.plan import Prediction
from ktdesk_wizard.plan.wishes import Wishes
from ktdesk_wizard.probe.machine_facts import MachineFacts
from ktdesk_wizard.probe.measurement import machine_key
from ktdesk_wizard.prove.run import MeasuredRun, Phase, SpeedSample

FORMULAS = 4
"""Raised when a formula of a plan changes: corrections of the former one are void."""
LAST_RUNS = 5
SAME_MODEL_SPREAD = 1.05
OTHER_FILE_SPREAD = 1.15
"""Of the same model in another quantization."""
OTHER_MODEL_SPREAD = 1.25


@dataclass(frozen=True)
class Conditions:
    """Of whom runs must be to count."""

    machine: str
    build: str
    compute: str
    isa: str
    num_threads: int


def conditions_of(facts: MachineFacts, wishes: Wishes, build: str) -> Conditions:
    """Of a run that a plan with these wishes leads to."""
    isa = facts.cpu.isa.value or "scalar"
    return Conditions(
        machine=machine_key(facts),
        build=build,
        compute=wishes.compute_on(isa),
        isa=isa,
        num_threads=wishes.num_threads or facts.cpu.num_threads.value or 1,
    )


@dataclass(frozen=True)
class Corrections:
    """Those runs that count for one model."""

    of_model: tuple[MeasuredRun, ...] = ()
    of_others: tuple[MeasuredRun, ...] = ()
    of_shape: tuple[MeasuredRun, ...] = ()
    """Of other files of the same model."""

    def corrected(self, prediction: Prediction, phase: Phase, depth: int) -> Prediction:
        """The prediction times the median factor of the last runs; runs at the nearest depth count."""
        runs, spread, whose = self._nearest
        factors = _factors(runs, phase, depth)
        if prediction.tok_s is None or not factors:
            return prediction
        factor = median(factors)
        spread = max(spread, *(max(other / factor, factor / other) for other in factors))
        times = f"{len(factors)} {'run' if len(factors) == 1 else 'runs'} of {whose}"
        tok_s = prediction.tok_s * factor
        return replace(
            prediction,
            tok_s=tok_s,
            min_tok_s=tok_s / spread,
            max_tok_s=tok_s * spread,
            correction=f"times {factor:.2f}, by {times}, the last of {runs[-1].date}",
        )

    @property
    def _nearest(self) -> tuple[tuple[MeasuredRun, ...], float, str]:
        """Runs, how far they may be off, and whose they are."""
        if self.of_model:
            return self.of_model, SAME_MODEL_SPREAD, "this model"
        if self.of_shape:
            return self.of_shape, OTHER_FILE_SPREAD, "this model in another quantization"
        return self.of_others, OTHER_MODEL_SPREAD, "other models"

    def factor(self, phase: Phase, depth: int) -> float | None:
        """Of runs of this model alone. None: there are none."""
        factors = _factors(self.of_model, phase, depth)
        return median(factors) if factors else None

    def memory_bytes(self) -> tuple[int, str] | None:
        """What a run of this model took more (or less) than was planned for it, and by what that is known."""
        measured = [(run.memory.missing_bytes, run.date) for run in self.of_model if run.memory is not None]
        if not measured:
            return None
        last = measured[-LAST_RUNS:]
        return round(median(missing for missing, _ in last)), f"by {len(last)} runs, the last of {last[-1][1]}"


NO_CORRECTIONS = Corrections()


@dataclass(frozen=True)
class Experience:
    """All that was measured here, for plans of several models, or of one in several quantizations."""

    runs: tuple[MeasuredRun, ...] = ()
    build: str = ""
    """Of the engine."""

    def about(self, model: PlannedModel, facts: MachineFacts, wishes: Wishes) -> Corrections:
        if not self.runs:
            return NO_CORRECTIONS
        return corrections_for(model, self.runs, conditions_of(facts, wishes, self.build))


NO_EXPERIENCE = Experience()


def corrections_for(model: PlannedModel, runs: Iterable[MeasuredRun], conditions: Conditions) -> Corrections:
    """runs: the oldest first."""
    on_cpu = [run for run in runs if run.formulas == FORMULAS and not run.accelerator]
    fitting = [run for run in on_cpu if conditions_of_run(run) == conditions]
    of_model = [run for run in fitting if run.model == model.fingerprint]
    of_others = [run for run in fitting if run.model != model.fingerprint]
    of_shape = [run for run in of_others if run.shape == model.shape]
    return Corrections(_quiet(of_model), _quiet(of_others), _quiet(of_shape))


def _quiet(runs: Sequence[MeasuredRun]) -> tuple[MeasuredRun, ...]:
    """Those beside which nothing else computed; all, where there is none."""
    return tuple(run for run in runs if not run.was_busy) or tuple(runs)


def conditions_of_run(run: MeasuredRun) -> Conditions:
    return Conditions(run.machine, run.build, run.compute, run.isa, run.num_threads)


def _factors(runs: Sequence[MeasuredRun], phase: Phase, depth: int) -> list[float]:
    """Of each of the last runs that measured the phase, at its depth nearest to this one."""
    nearest = []
    for run in runs:
        samples = [sample for sample in run.speeds if sample.phase == phase and _is_comparable(sample)]
        if samples:
            nearest.append(min(samples, key=lambda sample: _distance(sample, depth)))
    return [sample.factor for sample in nearest[-LAST_RUNS:] if sample.factor is not None]


def _is_comparable(sample: SpeedSample) -> bool:
    """A long prompt goes in larger pieces than the one that plans are about: how much faster, no formula says."""
    return sample.factor is not None and (sample.phase != "prefill" or sample.num_tokens <= SMALLEST)


def _distance(sample: SpeedSample, depth: int) -> float:
    return abs(math.log1p(sample.depth) - math.log1p(depth))
