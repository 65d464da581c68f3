"""The first two steps of the setup: what this machine is, and which models there are and how each would do on it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, TypeVar

from textual import on, work

from ktdesk.tui.kernels_first import import_kernels
from ktdesk.tui.place_screen import PlaceScreen
from ktdesk.tui.setup.machine import Machine
from ktdesk.tui.setup.machine_pane import MachinePane
from ktdesk.tui.setup.models_pane import ModelsPane
from ktdesk_wizard.errors import WizardError

if TYPE_CHECKING:
    from ktdesk.guided_setup import SetupChoice
    from ktdesk.model_choices import ModelChoice
    from ktdesk.settings import Settings

Found = TypeVar("Found")
SECONDS_BETWEEN_TICKS = 0.5


class ChoosingScreen(PlaceScreen):
    """For the screen that has the panes, and goes on with what is chosen."""

    def __init__(self) -> None:
        super().__init__()
        self._machine = Machine(self.ktdesk.settings)
        self._choices: list[ModelChoice] = []
        self._unfinished: list[SetupChoice] = []

    # What the screen does with it

    @property
    def _is_begun(self) -> bool:
        """A setup goes on."""
        raise NotImplementedError

    def _begin(self, choice: SetupChoice, title: str) -> None:
        """Of a model that was chosen."""
        raise NotImplementedError

    def _tell(self, error: BaseException | str, steps: dict[str, str]) -> None:
        raise NotImplementedError

    def _facts_changed(self) -> None:
        """Of the machine."""

    def _measured_again(self) -> None:
        """Because somebody asked for it."""

    async def _aside(self, job: Callable[..., Found], *arguments: object) -> Found:
        """What blocks, in a thread. Where the app ended meanwhile, nothing goes on after it."""
        found = await asyncio.to_thread(job, *arguments)
        if not self.query("#plan-state"):
            raise asyncio.CancelledError
        return found

    @work(exclusive=True, group="machine")
    async def _look_at_machine(self, *, again: bool = False) -> None:
        try:
            await self._aside(self._machine.look)
            if again or not self._machine.is_measured:
                await self._measure_machine()
            self._show_machine()
            if again:
                self._measured_again()
        except (WizardError, OSError) as error:
            self._show_machine()
            self._tell(error, {"measure": "Try again", "models": "Go on without"})
        finally:
            self._machine.settle()

    async def _measure_machine(self) -> None:
        self._machine.begin_measuring()
        self._show_machine()
        pane = self.query_one(MachinePane)
        ticking = self.set_interval(SECONDS_BETWEEN_TICKS, lambda: pane.show_measuring(self._machine.measuring))
        try:
            await self._aside(self._machine.measure)
        finally:
            ticking.stop()

    def _show_machine(self) -> None:
        pane, machine, measuring = self.query_one(MachinePane), self._machine, self._machine.measuring
        pane.show_measuring(measuring)
        if machine.facts is not None:
            pane.show(machine.facts, machine.findings, is_measuring=measuring is not None)
            self._judge()
            self._facts_changed()

    @work(exclusive=True, group="models")
    async def _list_models(self) -> None:
        settings = self.ktdesk.settings
        try:
            self._unfinished, self._choices = await self._aside(_listed, settings)
        except (WizardError, OSError) as error:
            self.tell(error)
            return
        begun = called(self._unfinished[0]) if self._unfinished and not self._is_begun else None
        self.query_one(MachinePane).offer(begun)
        self.query_one(ModelsPane).show(self._choices)
        self._judge()

    @work(exclusive=True, group="judge")
    async def _judge(self) -> None:
        """One after the other: the list is used meanwhile."""
        facts, pane = self._machine.facts, self.query_one(ModelsPane)
        if facts is None:
            return
        from ktdesk.model_outlook import outlook_or_problem  # there was a look at the machine: it is loaded

        for choice in self._choices:
            judged = await self._aside(outlook_or_problem, choice, facts, self.ktdesk.settings)
            pane.judge({choice.name: judged})

    @on(ModelsPane.Chosen)
    @work(exclusive=True, group="choice")
    async def _plan_model(self, event: ModelsPane.Chosen) -> None:
        await self._aside(import_module, "ktdesk.guided_setup")
        from ktdesk.guided_setup import SetupChoice

        begun = next((each for each in self._unfinished if each.named == event.choice.name), None)
        self._begin(begun or SetupChoice(event.choice.name), event.choice.title)


def called(choice: SetupChoice) -> str:
    return "the demo model" if choice.model == "demo" else choice.named


def _listed(settings: Settings) -> tuple[list[SetupChoice], list[ModelChoice]]:
    """What was begun, and all that there is."""
    import_kernels()
    from ktdesk.guided_setup import unfinished_choices
    from ktdesk.model_outlook import model_choices

    return unfinished_choices(settings), model_choices(settings)
