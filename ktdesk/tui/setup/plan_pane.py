"""The third step: what goes where, how fast it should be, and what would be if something were otherwise."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.message import Message
from textual.reactive import reactive
from textual.widgets import Button, Static

from ktdesk.tui.markdown.harmless import harmless
from ktdesk.tui.setup.ledger_bars import ledger_content
from ktdesk.tui.setup.own_words import own_words
from ktdesk.tui.setup.plan_controls import OF_CARDS, SLIDERS, controls
from ktdesk.tui.setup.plan_words import (
    alternatives_content,
    head_content,
    notes_content,
    quality_content,
    speed_content,
)
from ktdesk.tui.setup.step_pane import StepPane
from ktdesk.tui.widgets.button_row import ButtonRow
from ktdesk.tui.widgets.slider import Slider
from ktdesk_engine.errors import EngineError
from ktdesk_wizard.errors import WizardError

if TYPE_CHECKING:
    from ktdesk.what_if import WhatIf
    from ktdesk_wizard.plan.plan import Plan
    from ktdesk_wizard.plan.wishes import Wishes


class PlanButton(Button):
    HELP = """What the model takes and how fast it should be. The controls below turn context, quantization, memory and
the rest, and the plan follows at once. Enter goes ahead; also with a plan that does not fit, if you insist."""


class MeasureBox(Button):
    """On or off, told by its sign: a colour alone would not do everywhere."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("space", "press", "Turn on or off", show=False)]
    HELP = """Enter or space turns it on: the model is loaded once in a process of its own, asked something and
measured, as `ktdesk setup` does."""
    WORDS = ("☐ measure it first", "☑ measure it first")

    is_on: reactive[bool] = reactive(False)

    def watch_is_on(self, is_on: bool) -> None:
        self.label = self.WORDS[is_on]


class PlanPane(StepPane):
    DEFAULT_CSS = """
    PlanPane {
        #plan-scroll { height: 1fr; padding: 0 1; }
        #plan-scroll Static { height: auto; }
        #ledger, #speeds, #sliders { margin-top: 1; }
        #sliders { height: auto; }
        .plan-title { text-style: bold; margin-top: 1; }
        #plan-state { height: auto; max-height: 2; padding: 0 1; color: $foreground 75%; }
    }
    """

    class Accepted(Message):
        """To go on with a plan as it is shown."""

        def __init__(self, wishes: Wishes, quantization: str | None, *, is_measured: bool, insists: bool) -> None:
            super().__init__()
            self.wishes, self.quantization = wishes, quantization
            self.is_measured, self.insists = is_measured, insists

    def __init__(self, id: str) -> None:
        super().__init__(id=id)
        self.what_if: WhatIf | None = None
        self.plan: Plan | None = None
        self._fails = ""
        """Why there is no plan with what the controls say."""
        self._is_wanted = False
        """Somebody said yes before it was planned."""
        self._state = ""
        """What is done just now."""

    def compose(self) -> ComposeResult:
        with VerticalScroll(id="plan-scroll", can_focus=False):
            yield Static(id="plan-head", markup=False)
            yield Static(id="ledger", markup=False)
            yield Static(id="speeds", markup=False)
            with Vertical(id="sliders"):
                for name, label in SLIDERS.items():
                    yield Slider(label, id=name)
            yield Static(id="notes", markup=False)
            yield Static("Instead", classes="plan-title")
            yield Static(id="alternatives", markup=False)
        yield Static(id="plan-state", markup=False)
        with ButtonRow():
            yield PlanButton("Go ahead", id="accept", compact=True)
            yield MeasureBox(MeasureBox.WORDS[False], id="measured", compact=True)
            yield PlanButton("Do not measure the machine", id="unmeasured", compact=True)

    def on_mount(self) -> None:
        self.query_one("#unmeasured").display = False

    def begin(self, title: str) -> None:
        """Of another model, of which nothing is known yet."""
        self.what_if, self.plan, self._is_wanted = None, None, False
        self.show_state("")
        self.query_one("#plan-head", Static).update(f"{harmless(title)} is planned …")
        for name in ("#ledger", "#speeds", "#notes", "#alternatives"):
            self.query_one(name, Static).update("")
        self.query_one("#sliders").display = self.query_one(".plan-title").display = False
        self.query_one("#accept", Button).label = "Go ahead"
        self.query_one("#accept", Button).disabled = True

    def show(self, what_if: WhatIf) -> None:
        """A plan, or a better known one of the same model: what the controls say stays, as far as there is that."""
        is_first = self.what_if is None
        wishes = what_if.wishes if is_first else self.wishes
        quantization = None if is_first else self.quantization
        self.what_if = what_if
        self.query_one("#sliders").display = self.query_one(".plan-title").display = True
        for name, stops, value in controls(what_if, wishes, quantization):
            self.query_one(f"#{name}", Slider).set_stops(stops, value)
        for name in OF_CARDS:
            self.query_one(f"#{name}").display = bool(what_if.facts.gpus.gpus)
        self._replan()

    def accept(self) -> None:
        """Now, or once it is planned, if it fits."""
        if self.plan is None:
            self._is_wanted = True
            self._draw_state()
        elif not self.query_one("#accept", Button).disabled:
            self._post()

    def show_state(self, text: str, *, waits_for_machine: bool = False) -> None:
        """What is done just now, and whether that may be done without."""
        self._state = text
        self.query_one("#unmeasured").display = waits_for_machine
        self._draw_state()

    def fail(self) -> None:
        """What went wrong is told elsewhere."""
        self._is_wanted = False
        self.show_state("")

    def _draw_state(self) -> None:
        wanted = "Enter is noted: it goes on once it is planned, if it fits.\n" if self._is_wanted else ""
        self.query_one("#plan-state", Static).update(harmless(wanted + self._state))

    @property
    def wishes(self) -> Wishes:
        """As the controls say."""
        assert self.what_if is not None
        values: dict[str, Any] = {name: self._value(name) for name in SLIDERS if name != "quantization"}
        if values["devices"] == "cpu":
            values["max_gpu_bytes"] = None
        return replace(self.what_if.wishes, **values)

    @property
    def is_estimated(self) -> bool:
        """No header was read yet."""
        return self.what_if is None or self.what_if.model.is_estimate

    @property
    def own_quantization(self) -> str | None:
        """Of the file that is planned; None: an estimate of none in particular."""
        what_if = self.what_if
        return None if what_if is None or what_if.model.is_estimate else what_if.model.quantization

    @property
    def quantization(self) -> str | None:
        value = self._value("quantization")
        return None if value is None else str(value)

    def _value(self, name: str) -> Any:
        return self.query_one(f"#{name}", Slider).value

    @on(Slider.Changed)
    def _turned(self) -> None:
        self._replan()

    @work(exclusive=True, group="plan")
    async def _replan(self) -> None:
        """The last turn counts. What the other quantizations would be like comes after the plan itself."""
        what_if = self.what_if
        if what_if is None:
            return
        wishes, quantization = self._wishes_or_why(), self.quantization
        if wishes is None:
            self._draw()
            return
        try:
            self.plan, self._fails = await asyncio.to_thread(what_if.plan, wishes, quantization), ""
        except (EngineError, WizardError) as error:
            self.plan, self._fails = None, " ".join(str(error).split())
        self._draw()
        if self.plan is not None:
            others = await asyncio.to_thread(what_if.others, self.plan, wishes)
            if not self.query("#alternatives"):
                return
            rejected = (*self.plan.rejected, *others)
            self.query_one("#alternatives", Static).update(alternatives_content(rejected))

    def _wishes_or_why(self) -> Wishes | None:
        try:
            return self.wishes
        except WizardError as error:
            self.plan, self._fails = None, str(error)
            return None

    def on_resize(self) -> None:
        self._draw()

    def _draw(self) -> None:
        if not self.query("#accept"):
            return  # the app ended meanwhile
        accept, plan = self.query_one("#accept", Button), self.plan
        accept.disabled = plan is None
        if plan is None:
            if self._fails:
                self.query_one("#plan-head", Static).update(harmless(own_words(self._fails)))
            return
        self.query_one("#plan-head", Static).update(head_content(plan))
        self.query_one("#ledger", Static).update(ledger_content(plan, max(30, self.size.width - 4)))
        self.query_one("#speeds", Static).update(speed_content(plan))
        data_folder = None if self.what_if is None else self.what_if.data_folder
        quality = quality_content(plan, self.wishes, data_folder)
        self.query_one("#notes", Static).update(Content("\n").join([*quality, notes_content(plan)]))
        fits = plan.verdict.kind != "does not fit"
        accept.label = "Go ahead" if fits else "Go ahead all the same"
        if self._is_another_file:
            accept.disabled, accept.label = True, "That is another file: Models has it"
        accept.refresh(layout=True)  # its label has another length, which a button does not look at
        if self.screen.focused is None and not accept.disabled and self.display:
            accept.focus()
        if self._is_wanted and not plan.is_estimate:
            self._go_on_if_it_fits(plan)

    def _go_on_if_it_fits(self, plan: Plan) -> None:
        if plan.verdict.kind == "fits":
            self._post()
        self._is_wanted = False
        self._draw_state()

    @property
    def _is_another_file(self) -> bool:
        """Of a file that is here there is only what it is; the plan shows what another would be like."""
        what_if = self.what_if
        is_file = what_if is not None and not what_if.model.is_estimate and not what_if.offered
        return is_file and what_if is not None and self.quantization != what_if.model.quantization

    @on(Button.Pressed, "#measured")
    def _turn_measuring(self, event: Button.Pressed) -> None:
        event.stop()
        box = self.query_one(MeasureBox)
        box.is_on = not box.is_on

    @on(Button.Pressed, "#unmeasured")
    def _leave_unmeasured(self, event: Button.Pressed) -> None:
        event.stop()
        self.post_message(self.Asked("unmeasured"))

    @on(Button.Pressed, "#accept")
    def _accept(self, event: Button.Pressed) -> None:
        event.stop()
        self._post()

    def _post(self) -> None:
        self._is_wanted = False
        if self.plan is None:
            return
        insists = self.plan.verdict.kind == "does not fit"
        is_measured = self.query_one(MeasureBox).is_on
        self.post_message(self.Accepted(self.wishes, self.quantization, is_measured=is_measured, insists=insists))
