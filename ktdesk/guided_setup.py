"""A setup for who watches it from a loop: it runs in a thread of its own, is looked at, stopped, and gone on with.

    guided = GuidedSetup(SetupChoice("demo"), settings)
    guided.begin()
    guided.steps, guided.stage    # values, at any time
    guided.confirm()              # where it asks; `stop` ends it, and the same choice begun again goes on

It knows no screen.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from ktdesk.what_if import WhatIf, with_offered
from ktdesk_wizard.errors import CancelledError, NotConfirmedError
from ktdesk_wizard.plan.wishes import Wishes
from ktdesk_wizard.setup.flow import Setup
from ktdesk_wizard.setup.outcome import Outcome
from ktdesk_wizard.setup.sources import ModelSource
from ktdesk_wizard.setup.step import Failure, Step, StepName
from ktdesk_wizard.setup.trials import Trials
from ktdesk_wizard.setup.wanted import Wanted

if TYPE_CHECKING:
    from ktdesk.settings import Settings
    from ktdesk_wizard.plan.plan import Plan
    from ktdesk_wizard.probe.machine_facts import MachineFacts

JOIN_SECONDS = 3.0
SECONDS_BETWEEN_LOOKS = 0.1
Stage = Literal["running", "asking", "done", "stopped", "failed"]
MakeTrials = Callable[[], Trials]


@dataclass(frozen=True)
class SetupChoice:
    """What is to be set up, and how."""

    model: str
    quantization: str | None = None
    wishes: Wishes = field(default_factory=Wishes)
    insists: bool = False
    """Whatever is refused is done all the same, where that is possible."""
    is_confirmed: bool = False
    is_measured: bool = False
    """It is loaded, asked and measured in a process of its own before it is handed over."""

    @property
    def named(self) -> str:
        return self.model if self.quantization is None else f"{self.model}:{self.quantization}"


class GuidedSetup:
    def __init__(
        self,
        choice: SetupChoice,
        settings: Settings,
        make_trials: MakeTrials | None = None,
        wait_for_machine: Callable[[float], bool] | None = None,
    ) -> None:
        """wait_for_machine: where another thread measures it: waits so many seconds, and says whether that came to
        its end. None: the setup measures it, if nobody did before."""
        self.choice = choice
        self.path: Path | None = None
        """The model, once it is here and whatever was asked for is done."""
        self.outcome: Outcome | None = None
        """Where it was measured."""
        self._settings, self._make_trials = settings, make_trials or Trials
        self._wait_for_machine = wait_for_machine
        self._setup: Setup | None = None
        self._source: ModelSource | None = None
        self._error: BaseException | None = None
        self._is_stopped = self._skips = False
        self._thread = threading.Thread(target=self._run, daemon=True)

    def begin(self) -> None:
        self._thread.start()

    @property
    def steps(self) -> tuple[Step, ...]:
        return () if self._setup is None else self._setup.steps

    def step(self, name: StepName) -> Step:
        return Step(name) if self._setup is None else self._setup.step(name)

    @property
    def stage(self) -> Stage:
        if self._error is not None:
            was_stopped = self._is_stopped or isinstance(self._error, (CancelledError, NotConfirmedError))
            return "stopped" if was_stopped else "failed"
        if self.path is not None:
            return "done"
        return "asking" if self.step("confirm").state == "asking" else "running"

    @property
    def failure(self) -> tuple[StepName | None, Failure] | None:
        """And at which step; None: before the first."""
        if self.stage != "failed" or self._error is None:
            return None
        for step in self.steps:
            if step.failure is not None:
                return step.name, step.failure
        return None, Failure(" ".join(str(self._error).split()), "choose another model", self._error)

    @property
    def plan(self) -> Plan | None:
        """Once there is one."""
        return None if self._setup is None else self._setup.work.plan

    @property
    def what_if(self) -> WhatIf | None:
        """Once it is planned, whether it fits or not."""
        work = None if self._setup is None else self._setup.work
        if work is None or work.plan is None or work.model is None or work.facts is None:
            return None
        return WhatIf(work.facts, work.model, self.choice.wishes, data_folder=self._settings.data_folder)

    def what_if_of_repository(self) -> WhatIf | None:
        """With what else its repository has. Asks the hub, so not for a loop."""
        from ktdesk.hub_source import HubSource

        what_if, source = self.what_if, self._source
        if what_if is None or not isinstance(source, HubSource):
            return what_if
        return with_offered(what_if, source.offered(), source.quantization)

    def confirm(self, *, is_measured: bool) -> None:
        """Where it asks."""
        self.choice = replace(self.choice, is_confirmed=True, is_measured=is_measured)
        if self._setup is not None:
            self._setup.answer(True)

    def stop(self) -> None:
        """What was done is done: the same choice begun again goes on from there."""
        self._is_stopped = True
        if self._setup is not None:
            self._setup.cancel()

    def skip(self) -> None:
        """What is measured: the model is here."""
        self._skips = True
        if self._setup is not None:
            self._setup.cancel()

    def wait(self, seconds: float) -> None:
        """So long, or until it ends. Blocks."""
        self._thread.join(seconds)

    def join(self) -> None:
        if self._thread.ident is not None:
            self._thread.join(JOIN_SECONDS)

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def _run(self) -> None:
        try:
            self._setup = self._made()
            if self._is_stopped:
                self._setup.cancel()
            path = self._setup.fetch()
            self.outcome = self._measured(self._setup) if self.choice.is_measured else None
            if self.outcome is None:
                self._setup.hand_over()
            self.path = path
        except BaseException as error:
            self._error = error

    def _measured(self, setup: Setup) -> Outcome | None:
        """None where nobody waits for it any more."""
        try:
            return setup.run()
        except CancelledError:
            if not self._skips:
                raise
            return None

    def _made(self) -> Setup:
        from ktdesk.commands.setup import SetupOptions
        from ktdesk.setting_up import source_of

        choice = self.choice
        wanted = Wanted(choice.named, choice.wishes, insists=choice.insists, is_confirmed=choice.is_confirmed)
        options = SetupOptions(force=choice.insists, quant=choice.quantization)
        self._source = source_of(choice.model, choice.wishes, self._settings, options)
        measure = None if self._wait_for_machine is None else self._let_others_measure
        folder = self._settings.data_folder
        return Setup(wanted, self._source, folder, trials=self._make_trials(), measure_machine=measure)

    def _let_others_measure(self, facts: MachineFacts) -> None:
        assert self._wait_for_machine is not None
        while not self._is_stopped and not self._wait_for_machine(SECONDS_BETWEEN_LOOKS):
            pass


def unfinished_choices(settings: Settings) -> list[SetupChoice]:
    """Setups that were confirmed and interrupted, the latest first; then the demo model, if its making was."""
    from ktdesk.model_paths import DEMO
    from ktdesk_wizard.prove.run import engine_build
    from ktdesk_wizard.setup.journal import unfinished

    found = unfinished(settings.data_folder, engine_build())
    choices = [SetupChoice(wanted.model, None, wanted.wishes, is_confirmed=True) for wanted in found]
    if _is_demo_begun(settings) and all(choice.model != DEMO for choice in choices):
        choices.append(SetupChoice(DEMO, is_confirmed=True))
    return choices


def _is_demo_begun(settings: Settings) -> bool:
    """It is made before it can be planned, so that no journal has it yet."""
    from ktdesk.settings import DEMO_VARIABLE
    from ktdesk_profiles.demo import load_demo_profile
    from ktdesk_wizard.demo_model import was_begun

    return DEMO_VARIABLE not in os.environ and was_begun(load_demo_profile(), settings.models_folder / "demo")
