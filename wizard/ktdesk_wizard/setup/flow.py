"""A setup: eleven steps in order, each a value that whoever watches is told of, and a journal that survives a kill.

    setup = Setup(wanted, source, data_folder, listener=show)   # show(step) for every change of every step
    outcome = setup.run()                                       # in a thread of its own where a screen watches

It prints nothing and asks nobody: at `confirm` the step's state is "asking", and `answer` goes on, from the listener
or from any thread. `cancel` stops it at any time; `run` then raises CancelledError. Whatever was done is done: the
same setup begun again goes on from there.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from ktdesk_wizard.errors import CancelledError, NotConfirmedError
from ktdesk_wizard.prove.run import engine_build
from ktdesk_wizard.setup.advice import advice_of
from ktdesk_wizard.setup.journal import Journal
from ktdesk_wizard.setup.outcome import Outcome
from ktdesk_wizard.setup.sources import ModelSource
from ktdesk_wizard.setup.step import STEPS, Advance, Failure, FileAdvance, Step, StepName, Unit
from ktdesk_wizard.setup.trials import Trials
from ktdesk_wizard.setup.wanted import Wanted
from ktdesk_wizard.setup.work import Done, MeasureMachine, Work

Listener = Callable[[Step], None]
STOPPING = (CancelledError, NotConfirmedError, KeyboardInterrupt, SystemExit)
"""Somebody wanted it to end: Ctrl-C, a signal that ends processes, an answer."""


class Setup:
    def __init__(
        self,
        wanted: Wanted,
        source: ModelSource,
        data_folder: Path,
        listener: Listener = lambda step: None,
        trials: Trials | None = None,
        measure_machine: MeasureMachine | None = None,
    ) -> None:
        """measure_machine: where somebody else does it, or it is left undone; None: the setup does it."""
        self.wanted = wanted
        self._source = source
        self._steps = {name: Step(name) for name in STEPS}
        self._listener = listener
        self._trials = trials or Trials()
        self._cancelled = threading.Event()
        self._answered = threading.Event()
        self._answer = False
        journal = Journal(data_folder, wanted, engine_build())
        self.work = Work(wanted, source, data_folder, journal, self._trials, self, measure_machine)
        """What is known so far: facts, model, plan, run."""

    @property
    def steps(self) -> tuple[Step, ...]:
        """In order, as they are now."""
        return tuple(self._steps[name] for name in STEPS)

    @property
    def will_ask(self) -> bool:
        """At `confirm`, unless the plan of an interrupted setup, which was confirmed, has become another."""
        return not self.wanted.is_confirmed and not self.work.is_confirmed

    def step(self, name: StepName) -> Step:
        return self._steps[name]

    def run(self) -> Outcome:
        """To its end. Raises what stopped it, which the step that failed tells too."""
        self._run_steps(STEPS)
        return self.work.outcome()

    def fetch(self) -> Path:
        """Until the model is here. Who loads it himself calls `hand_over` then, others `run`: it goes on."""
        self._run_steps(STEPS[: STEPS.index("pull") + 1])
        assert self.work.path is not None
        return self.work.path

    def hand_over(self) -> None:
        """What comes after the model is here is left to others: there is nothing to go on with."""
        self.work.forget()

    def answer(self, goes_on: bool) -> None:
        """To the question of `confirm`."""
        self._answer = goes_on
        self._answered.set()

    def cancel(self) -> None:
        """From any thread."""
        self._cancelled.set()
        self._answered.set()
        self._trials.stop()

    def advance(
        self, name: StepName, done: float, total: float, unit: Unit, note: str = "", files: tuple[FileAdvance, ...] = ()
    ) -> None:
        """Told by the work. CancelledError where it is to stop."""
        self.check_cancelled()
        self._change(replace(self._steps[name], advance=Advance(done, total, unit, note, files)))

    def check_cancelled(self) -> None:
        if self._cancelled.is_set():
            raise CancelledError("stopped; the same command goes on from here")

    def ask(self, question: str) -> None:
        """Waits for the answer. NotConfirmedError where it is no."""
        self._answered.clear()
        self._change(replace(self._steps["confirm"], state="asking", result=question))
        self._answered.wait()
        self.check_cancelled()
        if not self._answer:
            raise NotConfirmedError("not confirmed: nothing was fetched or loaded")

    def _run_steps(self, names: Sequence[StepName]) -> None:
        try:
            for name in names:
                if self._steps[name].state != "done":
                    self._run_step(name)
        finally:
            self._trials.end()
            self._source.close()

    def _run_step(self, name: StepName) -> None:
        try:
            self.check_cancelled()
            self._change(Step(name, "running"))
            done = self.work.do(name)
            self.check_cancelled()
        except BaseException as error:
            self._change(self._failed(name, error))
            raise
        self._change(_as_done(name, done))

    def _failed(self, name: StepName, error: BaseException) -> Step:
        if self._cancelled.is_set() or isinstance(error, STOPPING):
            return Step(name, "cancelled", result=str(error))
        cause = " ".join(str(error).split()) or type(error).__name__
        return Step(name, "failed", failure=Failure(cause, advice_of(name, error), error))

    def _change(self, step: Step) -> None:
        self._steps[step.name] = step
        self._listener(step)


def _as_done(name: StepName, done: Done) -> Step:
    return Step(name, "done", result=done.result, is_from_before=done.is_from_before)
