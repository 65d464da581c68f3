"""The second step: every model that could be set up, how it would do here, and a place to name any other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Union

from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.events import Key, Paste
from textual.message import Message
from textual.widgets import DataTable, Input, Static

from ktdesk.amounts import bytes_text
from ktdesk.model_choices import ModelChoice, Outlook, named_choice
from ktdesk.tui.markdown.harmless import harmless
from ktdesk.tui.widgets.slider import Slider, Stop

Judged = Union[Outlook, str, None]  # noqa: UP007  evaluated, by Python 3.10 too
"""str: why nothing can be said of it."""
FILTERS = (
    Stop("all", "all models"),
    Stop("fits", "what fits here"),
    Stop("disk", "what is on this disk"),
    Stop("catalogue", "the catalogue"),
)
KINDS = {"demo": "demo", "here": "here", "partial": "on its way", "catalogue": "catalogue"}
VERDICTS = {
    "fits": ("● fits", "green"),
    "fits if you free memory": ("◐ if freed", "yellow"),
    "does not fit": ("○ too large", "red"),
    "unknown": ("unknown", "dim"),
}


class ModelTable(DataTable[Text]):
    HELP = """Models and how each would do on this machine. Enter plans the marked one; letters begin a search. The
tokens a second are those of answers, from the most careful to the most hopeful estimate."""

    def on_key(self, event: Key) -> None:
        """Letters go to the search, wherever the mark is."""
        search = self.screen.query_one("#search", Input)
        is_letter = event.is_printable and event.character is not None and (event.character != " " or search.value)
        if not is_letter and event.key != "backspace":
            return
        event.stop()
        event.prevent_default()
        search.focus()
        if is_letter:
            search.insert_text_at_cursor(str(event.character))
        else:
            search.action_delete_left()

    def on_paste(self, event: Paste) -> None:
        event.stop()
        search = self.screen.query_one("#search", Input)
        search.focus()
        search.insert_text_at_cursor(" ".join(event.text.split()))


class SearchInput(Input):
    HELP = """Part of a name searches. OWNER/REPOSITORY, with :QUANTIZATION if you like, the address of a file or a
path is taken as it is: Enter plans it. Down goes to the list."""

    def on_key(self, event: Key) -> None:
        if event.key == "down":
            event.stop()
            event.prevent_default()
            self.screen.query_one(ModelTable).focus()


class ModelsPane(Vertical):
    DEFAULT_CSS = """
    ModelsPane {
        #search { height: 1; border: none; padding: 0 1; background: $panel; }
        ModelTable { height: 1fr; margin: 0 1; }
        #about { height: 3; padding: 0 1; color: $foreground 75%; }
    }
    """

    class Chosen(Message):
        def __init__(self, choice: ModelChoice) -> None:
            super().__init__()
            self.choice = choice

    def __init__(self, id: str) -> None:
        super().__init__(id=id)
        self._choices: list[ModelChoice] = []
        self._judged: dict[str, Judged] = {}
        self._columns: list[Any] = []

    def compose(self) -> ComposeResult:
        yield SearchInput(
            placeholder="Search, or OWNER/REPOSITORY, an address, a path",
            id="search",
            compact=True,
            select_on_focus=False,
        )
        yield Slider("Show", FILTERS, id="filter")
        yield ModelTable(cursor_type="row", zebra_stripes=True)
        yield Static(id="about", markup=False)

    def on_mount(self) -> None:
        self._columns = self.query_one(ModelTable).add_columns("Model", "Size", "Where", "Here", "tok/s")

    def show(self, choices: Sequence[ModelChoice]) -> None:
        self._choices = list(choices)
        self._fill()

    def judge(self, judged: Mapping[str, Judged]) -> None:
        """Of some, by name. They go into their lines; where only those that fit are shown, the list is made anew."""
        self._judged.update(judged)
        if self.query_one("#filter", Slider).value == "fits":
            self._fill()
            return
        table, by_name = self.query_one(ModelTable), {choice.name: choice for choice in self._choices}
        for name in judged:
            if name in by_name and name in table.rows:
                for column, cell in zip(self._columns, self._cells(by_name[name]), strict=True):
                    table.update_cell(name, column, cell, update_width=True)
        self._describe()

    def focus_list(self) -> None:
        self.query_one(ModelTable).focus()

    @property
    def shown(self) -> list[ModelChoice]:
        """What search and filter leave."""
        searched = self.query_one("#search", Input).value.lower().split()
        kind = self.query_one("#filter", Slider).value
        return [
            choice
            for choice in self._choices
            if self._is_of(choice, kind) and all(word in f"{choice.name} {choice.title}".lower() for word in searched)
        ]

    def _is_of(self, choice: ModelChoice, kind: object) -> bool:
        judged = self._judged.get(choice.name)
        return {
            "fits": isinstance(judged, Outlook) and judged.verdict == "fits",
            "disk": choice.path is not None or choice.kind == "partial",
            "catalogue": choice.kind in ("demo", "catalogue"),
        }.get(str(kind), True)

    def _fill(self) -> None:
        table = self.query_one(ModelTable)
        marked = self._marked
        table.clear()
        for choice in self.shown:
            table.add_row(*self._cells(choice), key=choice.name)
        if marked is not None and marked.name in table.rows:
            table.move_cursor(row=table.get_row_index(marked.name))
        self._describe()

    def _cells(self, choice: ModelChoice) -> tuple[Text, ...]:
        judged, narrow = self._judged.get(choice.name, ...), self.app.size.width < 100
        size = choice.num_bytes if not isinstance(judged, Outlook) else judged.file_bytes
        name = Text(harmless(choice.title), "bold" if choice.kind == "demo" else "")
        name.truncate(30 if narrow else 60, overflow="ellipsis")
        size_text = "" if size is None else bytes_text(size)
        if isinstance(judged, Outlook) and judged.quantization and not narrow:
            size_text += f" {judged.quantization}"
        return name, Text(size_text), Text(KINDS[choice.kind], "dim"), verdict_text(judged), speed_cell(judged)

    @property
    def _marked(self) -> ModelChoice | None:
        table = self.query_one(ModelTable)
        if not table.row_count:
            return None
        name = table.coordinate_to_cell_key(table.cursor_coordinate).row_key.value
        return next((choice for choice in self._choices if choice.name == name), None)

    def _describe(self) -> None:
        marked = self._marked
        if marked is None:
            words = "Nothing here is called so. Enter takes it as the name of a repository, an address or a path."
        else:
            words = about(marked, self._judged.get(marked.name))
        self.query_one("#about", Static).update(harmless(words))

    @on(Input.Changed, "#search")
    @on(Slider.Changed, "#filter")
    def _filter(self) -> None:
        self._fill()

    @on(Input.Submitted, "#search")
    def _take_text(self, event: Input.Submitted) -> None:
        """A name as it is, where it is one; else the first that is found."""
        text = event.value.strip()
        shown = self.shown
        if shown and not (text and is_name(text) and all(choice.name != text for choice in shown)):
            self.post_message(self.Chosen(shown[0]))
        elif text:
            self.post_message(self.Chosen(named_choice(text)))

    @on(DataTable.RowSelected)
    def _take_row(self, event: DataTable.RowSelected) -> None:
        marked = self._marked
        if marked is not None:
            self.post_message(self.Chosen(marked))

    @on(DataTable.RowHighlighted)
    def _describe_row(self) -> None:
        self._describe()


def is_name(text: str) -> bool:
    """Of a repository, an address or a path."""
    return "/" in text or text.endswith(".gguf")


def verdict_text(judged: object) -> Text:
    if judged is ...:
        return Text("…", "dim")
    if isinstance(judged, Outlook):
        return Text(*VERDICTS[judged.verdict])
    return Text("broken" if isinstance(judged, str) else "not known", "red" if isinstance(judged, str) else "dim")


def speed_cell(judged: object) -> Text:
    if not isinstance(judged, Outlook) or judged.min_tok_s is None or judged.max_tok_s is None:
        return Text("")
    return Text(interval(judged.min_tok_s, judged.max_tok_s))


def interval(low: float, high: float) -> str:
    digits = 0 if high >= 20 else 1
    return f"{low:,.{digits}f} to {high:,.{digits}f}"


def about(choice: ModelChoice, judged: Judged) -> str:
    """The marked model in two lines."""
    weights = "" if choice.billions is None else f", {choice.billions:,.1f} billion weights"
    head = f"{choice.name}{weights}"
    if isinstance(judged, str):
        return f"{head}\n{judged}"
    if judged is None:
        return head
    of = f"{judged.quantization}: " if judged.quantization else ""
    context = f"; context {judged.context:,}" if judged.context else ""
    return f"{head}\n{of}{judged.message}{context}"
