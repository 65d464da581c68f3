"""Settings: colours, how answers are shown, and every key."""

from __future__ import annotations

from typing import ClassVar

from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.widgets import DataTable, Input, Label, Select, Static, Switch

from ktdesk.tui.keys import KEYS, binding, clashes
from ktdesk.tui.place_screen import PlaceScreen
from ktdesk.tui.preferences import RANGES
from ktdesk.tui.widgets.dialog import KeyQuestion

SWITCHES = {
    "load_last_model": "Load the last model when ktdesk starts",
    "show_reasoning": "Unfold reasoning while it comes",
}


class ThemeSelect(Select[str]):
    HELP = """The colours of the app. Enter opens the list. `ansi-dark` and `ansi-light` take those of the terminal;
the environment variable NO_COLOR takes all away."""


class SettingSwitch(Switch):
    HELP = """Enter or space turns it on or off: whether the last model is loaded as ktdesk starts, and whether
reasoning is unfolded while it comes."""


class PaceInput(Input):
    HELP = """How often a streaming answer is drawn at most, from 1 to 30 times a second. Fewer takes less of the
processor, which the model needs. Enter keeps it."""


class KeyTable(DataTable[Text]):
    """Every key, what it does and where."""

    HELP = "Enter binds the marked line to another key, Delete gives it its own key back."
    BINDINGS: ClassVar[list[BindingType]] = [
        binding("settings.rebind", "select_cursor"),
        binding("settings.reset", "screen.reset_key"),
    ]


class SettingsScreen(PlaceScreen):
    PLACE = "settings"
    DEFAULT_CSS = """
    SettingsScreen {
        #settings { layout: vertical; }
        #choices { height: auto; padding: 0 2; }
        #choices Horizontal { height: auto; }
        #choices Label { width: 44; height: 3; content-align: left middle; }
        #choices Select { width: 30; }
        #choices Input { width: 30; }
        #choices .state { width: auto; height: 3; content-align: left middle; }
        #file { color: $foreground 70%; height: auto; }
        #keys { height: 1fr; min-height: 8; margin: 1 2 0 2; }
        &.-narrow #choices Label { width: 1fr; max-width: 24; height: auto; min-height: 3; }
        &.-narrow #choices Select, &.-narrow #choices Input { width: 1fr; min-width: 20; }
        &.-wide {
            #settings { layout: horizontal; }
            #choices { width: 62; }
            #choices Label { width: 34; }
            #choices Select, #choices Input { width: 1fr; }
            #keys { height: 1fr; }
        }
        &.-short #settings { overflow-y: auto; }
        &.-short #choices { height: auto; }
        &.-short #keys { height: 12; }
    }
    """

    def compose_body(self) -> ComposeResult:
        now = self.ktdesk.preferences
        with VerticalScroll(id="settings", can_focus=False):
            with Vertical(id="choices"):
                with Horizontal():
                    yield Label("Colours")
                    names = sorted(self.app.available_themes, key=lambda name: (not name.startswith("ktdesk"), name))
                    yield ThemeSelect(
                        [(name, name) for name in names], value=self.app.theme, allow_blank=False, id="theme"
                    )
                for name, text in SWITCHES.items():
                    with Horizontal():
                        yield Label(text)
                        yield SettingSwitch(getattr(now, name), id=name)
                        yield Static(_state_words(getattr(now, name)), id=f"{name}-state", classes="state")
                with Horizontal():
                    yield Label("Pictures a second of a streaming answer")
                    yield PaceInput(f"{now.renders_per_second:g}", type="number", id="renders_per_second")
                yield Static(f"Kept in {self.ktdesk.settings.data_folder / 'app.yaml'}", id="file", markup=False)
            yield KeyTable(id="keys", cursor_type="row", zebra_stripes=True)

    def on_mount(self) -> None:
        table = self.query_one(KeyTable)
        table.add_columns("Key", "Does", "Where", "Name")
        self._fill(table)

    def _fill(self, table: KeyTable) -> None:
        row = table.cursor_row
        table.clear()
        bound = self.ktdesk.preferences.keys
        for name, key in KEYS.items():
            shown = Text(bound.get(name, key.key).replace(",", ", "), "bold reverse" if name in bound else "bold")
            table.add_row(shown, Text(key.what), Text(key.group), Text(name), key=name)
        table.move_cursor(row=row)

    @on(Select.Changed, "#theme")
    def _change_theme(self, event: Select.Changed) -> None:
        if isinstance(event.value, str):
            self.app.theme = event.value

    @on(Switch.Changed)
    def _change_switch(self, event: Switch.Changed) -> None:
        name = event.switch.id
        self.query_one(f"#{name}-state", Static).update(_state_words(event.value))
        if name in SWITCHES and event.value != getattr(self.ktdesk.preferences, name):
            self.ktdesk.change_preferences(**{name: event.value})

    @on(Input.Submitted, "#renders_per_second")
    @on(Input.Blurred, "#renders_per_second")
    def _change_pace(self, event: Input.Submitted | Input.Blurred) -> None:
        low, high = RANGES["renders_per_second"]
        try:
            wanted = min(max(float(event.value), low), high)
        except ValueError:
            wanted = self.ktdesk.preferences.renders_per_second
        event.input.value = f"{wanted:g}"
        if wanted != self.ktdesk.preferences.renders_per_second:
            self.ktdesk.change_preferences(renders_per_second=wanted)

    @on(DataTable.RowSelected, "#keys")
    async def _ask_for_key(self, event: DataTable.RowSelected) -> None:
        name = str(event.row_key.value)

        def bind(key: str | None) -> None:
            if key is not None:
                self._bind(name, key)

        await self.app.push_screen(KeyQuestion(KEYS[name].what), bind)

    def action_reset_key(self) -> None:
        table = self.query_one(KeyTable)
        name = str(table.coordinate_to_cell_key(table.cursor_coordinate).row_key.value)
        self._bind(name, KEYS[name].key)

    def _bind(self, name: str, key: str) -> None:
        bound = dict(self.ktdesk.preferences.keys)
        taken = clashes(bound, name, key)
        if taken:
            self.tell(f"{key} is taken: {', '.join(KEYS[other].what for other in taken)}. Bind that to another first.")
            return
        bound.pop(name, None)
        if key != KEYS[name].key:
            bound[name] = key
        self.ktdesk.change_preferences(keys=bound)
        self._fill(self.query_one(KeyTable))


def _state_words(is_on: bool) -> str:
    """Beside a switch: without colours, both its states are greys."""
    return "on" if is_on else "off"
