"""Setup: from this machine to a model that answers, step by step. The work is a `Setup` of the wizard."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from textual import on, work
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.widgets import ContentSwitcher

from ktdesk.tui.keys import binding
from ktdesk.tui.setup.choosing import ChoosingScreen, called
from ktdesk.tui.setup.download_pane import DownloadPane
from ktdesk.tui.setup.failing import failure_words, link_failure, next_steps
from ktdesk.tui.setup.load_pane import LoadPane
from ktdesk.tui.setup.machine_pane import MachinePane
from ktdesk.tui.setup.machine_words import measuring_words
from ktdesk.tui.setup.models_pane import ModelsPane
from ktdesk.tui.setup.plan_pane import PlanPane
from ktdesk.tui.setup.server_load import ServerLoad
from ktdesk.tui.setup.state_words import state_words
from ktdesk.tui.setup.step_pane import StepPane
from ktdesk.tui.setup.steps_bar import NAMES, StepsBar
from ktdesk.tui.widgets.failure_bar import FailureBar

if TYPE_CHECKING:
    from ktdesk.guided_setup import GuidedSetup, SetupChoice
    from ktdesk.model_link import LinkState

SECONDS_BETWEEN_LOOKS = 0.15
FOCUS = {"machine": "#choose", "models": "ModelTable", "plan": "#accept", "download": "#pause", "load": "#cancel"}


class SetupScreen(ChoosingScreen):
    PLACE = "setup"
    AUTO_FOCUS: ClassVar[str] = ""
    """Each step has its own."""
    BINDINGS: ClassVar[list[BindingType]] = [
        binding("setup.back", "back"),
        binding("setup.next", "next", show=False),
    ]
    DEFAULT_CSS = """
    SetupScreen {
        ContentSwitcher { height: 1fr; }
        ButtonRow Button { min-width: 10; }
    }
    """

    def __init__(self) -> None:
        super().__init__()
        self._load = ServerLoad(lambda job: self.ktdesk.change_link(job))
        self._guided: GuidedSetup | None = None
        self._title = ""
        """Of the model that is set up."""

    def compose_body(self) -> ComposeResult:
        yield StepsBar()
        with ContentSwitcher(initial="machine"):
            yield MachinePane(id="machine")
            yield ModelsPane(id="models")
            yield PlanPane(id="plan")
            yield DownloadPane(id="download")
            yield LoadPane(id="load")
        yield FailureBar()

    def on_mount(self) -> None:
        self.watch(self.app, "link_state", self._link_changed)
        self._look_at_machine()

    def on_screen_resume(self) -> None:
        self._list_models()
        if self.focused is None:
            self._focus_step()

    def on_unmount(self) -> None:
        """What comes is kept as far as it came."""
        if self._guided is not None:
            self._guided.stop()
        self._machine.leave()
        if self._guided is not None:
            self._guided.join()

    # Going about

    @property
    def here(self) -> str:
        return self.query_one(StepsBar).here

    def go(self, step: str) -> None:
        bar = self.query_one(StepsBar)
        bar.reached |= {step}
        bar.here = step
        self.query_one(ContentSwitcher).current = step
        self.set_focus(None)
        self._focus_step()

    def _focus_step(self) -> None:
        self.query_one(f"#{self.here} {FOCUS[self.here]}").focus()

    @on(StepsBar.Chosen)
    def _go_to(self, event: StepsBar.Chosen) -> None:
        self.go(event.step)

    def action_back(self) -> None:
        index = NAMES.index(self.here)
        if index:
            self.go(NAMES[index - 1])

    def action_next(self) -> None:
        """Enter, where what has the focus has no use for it."""
        if self.here == "plan":
            self.query_one(PlanPane).accept()

    # The setup

    @property
    def _is_begun(self) -> bool:
        return self._guided is not None

    def _facts_changed(self) -> None:
        self._show_estimate()

    def _measured_again(self) -> None:
        """What waits for an answer is planned with what is known now."""
        if self._guided is not None and self._guided.stage == "asking":
            self._begin(self._guided.choice, self._title)

    def _begin(self, choice: SetupChoice, title: str) -> None:
        """Of a model, anew or from where it was."""
        from ktdesk.guided_setup import GuidedSetup

        self.query_one(FailureBar).clear()
        if self._guided is not None:
            self._guided.stop()
        is_other = self._guided is None or self._guided.choice.model != choice.model
        self._title = title
        self._load.end()
        self._guided = GuidedSetup(choice, self.ktdesk.settings, wait_for_machine=self._machine.wait)
        if is_other or not choice.is_confirmed:
            self.query_one(StepsBar).reached = frozenset({"machine", "models", "plan"})
            self.query_one(PlanPane).begin(title)
            if is_other or self.here != "machine":
                self.go("plan")
            self._show_estimate()
        self._watch_setup(self._guided)

    def _show_estimate(self) -> None:
        """Of a model of the catalogue, as long as its header was not read."""
        pane, guided = self.query_one(PlanPane), self._guided
        if guided is None or not pane.is_estimated:
            return
        estimate = self._machine.estimate(guided.choice)
        if estimate is not None:
            pane.show(estimate)

    @work(exclusive=True, group="setup")
    async def _watch_setup(self, guided: GuidedSetup) -> None:
        guided.begin()
        is_planned = False
        while guided.is_alive:
            if not is_planned and guided.what_if is not None:
                is_planned = True
                self._show_plan(guided)
            self._show_setup(guided)
            await self._aside(guided.wait, SECONDS_BETWEEN_LOOKS)
        if not is_planned and guided.what_if is not None:
            self._show_plan(guided)
        self._show_setup(guided)
        self._end(guided)

    @work(exclusive=True, group="offers")
    async def _show_plan(self, guided: GuidedSetup) -> None:
        pane, what_if = self.query_one(PlanPane), guided.what_if
        assert what_if is not None
        if guided is not self._guided:  # another was begun since; what the controls say would count for that
            return
        pane.show(what_if)
        with_offers = await self._aside(guided.what_if_of_repository)
        if with_offers is not None and with_offers.offered and guided is self._guided:
            pane.show(with_offers)

    def _show_setup(self, guided: GuidedSetup) -> None:
        pull, measuring = guided.step("pull"), self._machine.measuring
        if measuring is not None and guided.step("measure").state == "running":
            self.query_one(PlanPane).show_state(measuring_words(measuring), waits_for_machine=True)
        else:
            self.query_one(PlanPane).show_state(state_words(guided.steps))
        self.query_one(DownloadPane).show(self._title, pull, is_paused=guided.stage == "stopped")
        if pull.state == "running" and self.here == "plan":
            self.go("download")
        if guided.choice.is_measured and pull.state == "done":
            self.query_one(LoadPane).show_steps(self._title, guided.steps)
            if self.here in ("plan", "download"):
                self.go("load")

    @on(PlanPane.Accepted)
    def _go_ahead(self, event: PlanPane.Accepted) -> None:
        guided = self._guided
        if guided is None:
            return
        own = None if guided.what_if is None else self.query_one(PlanPane).own_quantization
        quantization = guided.choice.quantization if event.quantization == own else event.quantization
        wanted = replace(guided.choice, wishes=event.wishes, quantization=quantization)
        if guided.stage == "asking" and wanted == guided.choice and not event.insists:
            guided.confirm(is_measured=event.is_measured)
            return
        insists = event.insists or guided.choice.insists
        self._begin(
            replace(wanted, insists=insists, is_confirmed=True, is_measured=event.is_measured), self._title
        )  # fmt: skip

    def _end(self, guided: GuidedSetup) -> None:
        if guided is not self._guided:
            return
        if guided.stage == "done":
            self.query_one(LoadPane).show_outcome(guided.outcome)
            self._load_again()
        elif guided.failure is not None:
            step, failure = guided.failure
            self.query_one(PlanPane).fail()
            self._tell(failure_words(self._title, step, failure), next_steps(step, failure))

    def _load_again(self) -> None:
        if self._guided is not None and self._guided.path is not None:
            self.go("load")
            self._load.begin(self._guided)

    def _link_changed(self, state: LinkState | None) -> None:
        if state is None or not self._load.is_about(state):
            return
        self.query_one(LoadPane).show_link(state)
        if state.is_ready:
            self._load.end()
            self.query_one(StepsBar).reached |= {"load"}
            if self.app.screen is self:
                self.ktdesk.action_show_place("chat")
        elif state.stage in ("failed", "gone"):
            self._tell(*link_failure(state))

    # What was told, and what can be done

    def _tell(self, error: BaseException | str, steps: dict[str, str]) -> None:
        """Who looks through the models meanwhile keeps the focus."""
        from ktdesk.failures import describe

        self.query_one(FailureBar).tell(error if isinstance(error, str) else describe(error), **steps)
        if self.here != "models":
            self.query("FailureBar Button").first().focus()

    @on(StepPane.Asked)
    def _do(self, event: StepPane.Asked) -> None:
        self._take(event.what)

    @on(FailureBar.Chosen)
    def _take_step(self, event: FailureBar.Chosen) -> None:
        event.stop()
        self._take(event.step)

    def _take(self, step: str) -> None:
        self.query_one(FailureBar).clear()
        jobs: dict[str, Callable[[], object]] = {
            "choose": lambda: self.go("models"),
            "models": self._choose_another,
            "plan": lambda: self.go("plan"),
            "measure": lambda: self._look_at_machine(again=True),
            "unmeasured": self._leave_unmeasured,
            "resume": self._resume,
            "retry": self._resume,
            "insist": self._insist,
            "pause": self._stop,
            "cancel": self._cancel,
            "skip": self._skip,
            "load": self._load_again,
            "unguarded": self._load_unguarded,
        }
        jobs[step]()

    def _choose_another(self) -> None:
        self.query_one(ModelsPane).forget_search()
        self.go("models")

    def _leave_unmeasured(self) -> None:
        self._machine.leave()
        self._show_machine()
        self._focus_step()

    def _stop(self) -> None:
        if self._guided is not None:
            self._guided.stop()

    def _resume(self) -> None:
        """The same again, from where it was; or what was begun before the app was."""
        if self._guided is not None:
            self._begin(self._guided.choice, self._title)
        elif self._unfinished:
            self._begin(self._unfinished[0], called(self._unfinished[0]))

    def _insist(self) -> None:
        if self._guided is not None:
            self._begin(replace(self._guided.choice, insists=True, is_confirmed=True), self._title)

    def _skip(self) -> None:
        if self._guided is not None:
            self._guided.skip()

    def _cancel(self) -> None:
        """Loading, by whom ever."""
        if not self._load.cancel():
            self._stop()
        self.go("plan")

    def _load_unguarded(self) -> None:
        self._load.insist()
        self._load_again()
