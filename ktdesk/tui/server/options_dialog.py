"""How a model is loaded again: options of the engine, each that changes answers beside what that was found to cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from textual import on
from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.widgets import Button, Input, Label, Select, Static

from ktdesk.errors import UsageError
from ktdesk.options import EngineOptions, as_typed
from ktdesk.quality_figures import Figures, cost_words, figure_of, words_of
from ktdesk.tui.markdown.harmless import harmless
from ktdesk.tui.widgets.dialog import Dialog, buttons
from ktdesk_engine.config import CACHE_TYPES, COMPUTES
from ktdesk_engine.errors import EngineError

LOSSY = {"compute": "Compute", "cache_type": "Cache", "experts": "Experts a token", "defer": "Deferred experts"}
"""Options that change answers, by name. With their titles."""
NOT_MEASURED = "not measured"
USUAL = EngineOptions()


class ServerOptionsDialog(Dialog[EngineOptions]):
    AUTO_FOCUS = "#compute"
    HELP = """Options that the model is loaded with. Beside those that change its answers stands what they were found to
cost with `ktdesk eval`; zero nats and 100 % would be the exact answers."""
    DEFAULT_CSS = """
    ServerOptionsDialog {
        & > .dialog { width: 96; }
        .pair { height: 3; }
        .pair Label { width: 18; height: 3; margin: 0; content-align: left middle; }
        .pair Select, .pair Input { width: 24; }
        .cost { width: 1fr; height: 3; padding: 0 1; content-align: left middle; color: $foreground 75%; }
        #together { height: auto; margin-top: 1; }
        #problem { color: $error; height: auto; }
    }
    """

    def __init__(self, path: str, options: EngineOptions, figures: Sequence[Figures]) -> None:
        """figures: of the file."""
        super().__init__("Load it again")
        self._path = path
        self._options = options
        self._figures = figures

    def compose_body(self) -> ComposeResult:
        computes = [(name, name) for name in COMPUTES]
        yield self._pair(Select(computes, value=self._options.compute, allow_blank=False, id="compute"))
        caches = [("as usual", ""), *((name, name) for name in CACHE_TYPES)]
        yield self._pair(Select(caches, value=self._options.cache_type or "", allow_blank=False, id="cache_type"))
        yield self._pair(Input(_typed(self._options.experts), placeholder="as trained", id="experts"))
        yield self._pair(Input(self._options.defer, placeholder="0", id="defer"))
        with Horizontal(classes="pair"):
            yield Label("Context, tokens")
            yield Input(_typed(self._options.context), placeholder="as trained, if it fits", id="context")
        yield Static(id="together", markup=False)
        yield Static(id="problem", markup=False)
        yield buttons(Button("Cancel", id="cancel"), Button("Load it", id="load", variant="primary"))

    def on_mount(self) -> None:
        self._show_costs()

    @on(Select.Changed)
    @on(Input.Changed)
    def _show_costs(self) -> None:
        """Of each option alone, and of all together."""
        options = self._chosen()
        if options is None:
            return
        for name in LOSSY:
            self.query_one(f"#cost-{name}", Static).update(self._cost_of(**{name: getattr(options, name)}))
        self.query_one("#together", Static).update(self._together_words(options))

    def _cost_of(self, **changed: object) -> str:
        """Empty for what is as usual and was not measured."""
        options = replace(USUAL, **changed)  # type: ignore[arg-type]
        found = figure_of(self._figures, options.compute, options.cache_type, options.defer, options.experts)
        if found is not None:
            return cost_words(found)
        return "" if options == USUAL else NOT_MEASURED

    def _together_words(self, options: EngineOptions) -> str:
        chosen: dict[str, Any] = {name: getattr(options, name) for name in LOSSY}
        changed = {name: value for name, value in chosen.items() if value != getattr(USUAL, name)}
        words = words_of(self._figures, self._path, **changed)
        return harmless(f"Together: {words}") if words and changed else ""

    @on(Button.Pressed, "#cancel")
    def _cancel(self) -> None:
        self.dismiss(None)

    @on(Button.Pressed, "#load")
    @on(Input.Submitted)
    def _take(self) -> None:
        options = self._chosen()
        if options is not None:
            self.dismiss(options)

    def _chosen(self) -> EngineOptions | None:
        """None where something makes no sense, which is told."""
        problem = self.query_one("#problem", Static)
        try:
            options = replace(
                self._options,
                compute=str(self.query_one("#compute", Select).value),
                cache_type=str(self.query_one("#cache_type", Select).value) or None,
                experts=_number("Experts a token", self.query_one("#experts", Input).value),
                defer=self.query_one("#defer", Input).value.strip() or "0",
                context=_number("Context", self.query_one("#context", Input).value),
            )
            _ = options.config
        except (UsageError, EngineError, ValueError) as error:
            problem.update(harmless(as_typed(" ".join(str(error).split()))))
            return None
        problem.update("")
        return options

    def _pair(self, control: Select[str] | Input) -> Horizontal:
        """With what it costs."""
        cost = Static(id=f"cost-{control.id}", classes="cost", markup=False)
        return Horizontal(Label(LOSSY[str(control.id)]), control, cost, classes="pair")


def _typed(number: int | None) -> str:
    return "" if number is None else str(number)


def _number(title: str, text: str) -> int | None:
    if not text.strip():
        return None
    if not text.strip().isdecimal() or not int(text):
        raise UsageError(f"{title} must be a whole number of at least 1, not {text.strip()!r}")
    return int(text)
