"""The list of models: a line each, whose names have what the other columns leave of the width."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Union

from rich.text import Text
from textual.binding import Binding, BindingType
from textual.events import Key, Paste
from textual.widgets import DataTable, Input

from ktdesk.amounts import bytes_text
from ktdesk.model_choices import ModelChoice, Outlook
from ktdesk.tui.markdown.harmless import harmless

Judged = Union[Outlook, str, None]  # noqa: UP007  evaluated, by Python 3.10 too
"""str: why nothing can be said of it."""
COLUMNS = ("Model", "Size", "Where", "Here", "tok/s")
PADDING, SCROLL_BAR = 2, 1
"""Of each cell; of the table."""
MIN_NAME, MAX_NAME = 16, 60
WIDE = 100
KINDS = {"demo": "demo", "here": "here", "partial": "on its way", "catalogue": "catalogue"}
VERDICTS = {
    "fits": ("● fits", "success"),
    "fits if you free memory": ("◐ if freed", "warning"),
    "does not fit": ("○ too large", "error"),
    "unknown": ("unknown", ""),
}


class ModelTable(DataTable[Text]):
    HELP = """Models and how each would do on this machine. Enter plans the marked one; letters begin a search. The
tokens a second are those of answers, from the most careful to the most hopeful estimate."""
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("home", "scroll_top", "First", show=False),
        Binding("end", "scroll_bottom", "Last", show=False),
    ]

    def __init__(self) -> None:
        super().__init__(cursor_type="row", zebra_stripes=True)
        self._keys: list[Any] = []
        self._widths = [len(title) for title in COLUMNS[1:]]
        """Of the widest cells so far, but for the names."""
        self._models: list[tuple[ModelChoice, object]] = []

    def on_mount(self) -> None:
        self._keys = self.add_columns(*COLUMNS)
        self.watch(self.app, "theme", self._draw, init=False)

    def on_resize(self) -> None:
        if self._keys:
            self._draw()

    def fill(self, models: Sequence[tuple[ModelChoice, object]]) -> None:
        """Each with how it was judged; `...`: not yet. The mark stays on its model."""
        self._models = list(models)
        self._draw()

    def judge(self, choice: ModelChoice, judged: Judged) -> None:
        """Of a line that is there; of others nothing."""
        if choice.name not in self.rows:
            return
        self._models = [(each, judged if each.name == choice.name else known) for each, known in self._models]
        cells = self._other_cells(choice, judged)
        if self._widen(cells):
            self._draw()
            return
        for column, cell in zip(self._keys[1:], cells, strict=True):
            self.update_cell(choice.name, column, cell, update_width=True)

    @property
    def marked(self) -> str | None:
        """Its name."""
        return self.coordinate_to_cell_key(self.cursor_coordinate).row_key.value if self.row_count else None

    def _draw(self) -> None:
        marked = self.marked
        rows = [(choice, self._other_cells(choice, judged)) for choice, judged in self._models]
        for _, cells in rows:
            self._widen(cells)
        names = [self._name_cell(choice) for choice, _ in rows]
        self.clear()
        column = self.columns[self._keys[0]]
        column.auto_width, column.width = False, max([name.cell_len for name in names] + [MIN_NAME])
        for name, (choice, cells) in zip(names, rows, strict=True):
            self.add_row(name, *cells, key=choice.name)
        if marked is not None and marked in self.rows:
            self.move_cursor(row=self.get_row_index(marked))

    def _widen(self, cells: Sequence[Text]) -> bool:
        """Whether a column became wider."""
        before = self._widths
        self._widths = [max(width, cell.cell_len) for width, cell in zip(before, cells, strict=True)]
        return self._widths != before

    def _name_cell(self, choice: ModelChoice) -> Text:
        name = Text(harmless(choice.title), "bold" if choice.kind == "demo" else "")
        name.truncate(self._name_width, overflow="ellipsis")
        return name

    @property
    def _name_width(self) -> int:
        """Before it is shown, as it will be."""
        width = self.size.width or self.app.size.width - PADDING
        room = width - sum(self._widths) - PADDING * len(COLUMNS) - SCROLL_BAR
        return min(max(room, MIN_NAME), MAX_NAME)

    def _other_cells(self, choice: ModelChoice, judged: object) -> tuple[Text, ...]:
        size = judged.file_bytes if isinstance(judged, Outlook) else choice.num_bytes
        size_text = "" if size is None else bytes_text(size)
        if isinstance(judged, Outlook) and judged.quantization and self.app.size.width >= WIDE:
            size_text += f" {judged.quantization}"
        verdict = verdict_text(judged)
        tone = self.app.theme_variables.get(str(verdict.style), "")
        verdict.style = "" if self.app.no_color else tone.removeprefix("ansi_")  # what is left of red cannot be read
        return Text(size_text), Text(KINDS[choice.kind]), verdict, speed_text(judged)

    def on_key(self, event: Key) -> None:
        """Letters go to the search, wherever the mark is."""
        search = self.screen.query_one("#search", Input)
        is_letter = event.is_printable and event.character is not None and (event.character != " " or search.value)
        if not is_letter and event.key != "backspace":
            return
        self._to_search(event, search.action_delete_left if not is_letter else None, str(event.character))

    def on_paste(self, event: Paste) -> None:
        self._to_search(event, None, " ".join(event.text.split()))

    def _to_search(self, event: Key | Paste, does: Callable[[], None] | None, text: str) -> None:
        event.stop()
        event.prevent_default()
        search = self.screen.query_one("#search", Input)
        search.focus()
        if does is None:
            search.insert_text_at_cursor(text)
        else:
            does()


def verdict_text(judged: object) -> Text:
    """Its style is the name of a colour of the theme."""
    if judged is ...:
        return Text("…")
    if isinstance(judged, Outlook):
        return Text(*VERDICTS[judged.verdict])
    return Text("broken", "error") if isinstance(judged, str) else Text("not known")


def speed_text(judged: object) -> Text:
    if not isinstance(judged, Outlook) or judged.min_tok_s is None or judged.max_tok_s is None:
        return Text("")
    return Text(interval(judged.min_tok_s, judged.max_tok_s))


def interval(low: float, high: float) -> str:
    digits = 0 if high >= 20 else 1
    return f"{low:,.{digits}f} to {high:,.{digits}f}"
