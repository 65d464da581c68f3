"""The second step: every model that could be set up, how it would do here, and a place to name any other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from textual import on
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.events import Key
from textual.message import Message
from textual.widgets import DataTable, Input, Static

from ktdesk.model_choices import ModelChoice, Outlook, named_choice
from ktdesk.tui.markdown.harmless import harmless
from ktdesk.tui.setup.model_table import Judged, ModelTable
from ktdesk.tui.setup.own_words import own_words
from ktdesk.tui.setup.typed_name import TypedName, typed_name
from ktdesk.tui.widgets.slider import Slider, Stop

FILTERS = (
    Stop("all", "all models"),
    Stop("fits", "what fits here"),
    Stop("disk", "what is on this disk"),
    Stop("catalogue", "the catalogue"),
)
HIDDEN = "Models that are called so are not of this kind: Tab, then left shows all."
TO_LIST = ("down", "pagedown", "pageup")


class SearchInput(Input):
    HELP = """Part of a name searches. OWNER/REPOSITORY, with :QUANTIZATION if you like, the address of a file or a
path is taken as it is: Enter plans it. Down goes to the list."""

    def on_key(self, event: Key) -> None:
        if event.key in TO_LIST:
            event.stop()
            event.prevent_default()
            self.screen.query_one(ModelTable).focus()


class ModelsPane(Vertical):
    DEFAULT_CSS = """
    ModelsPane {
        #search { height: 1; border: none; padding: 0 1; background: $panel; }
        ModelTable { height: 1fr; min-height: 4; margin: 0 1; }
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

    def compose(self) -> ComposeResult:
        yield SearchInput(
            placeholder="Search, or OWNER/REPOSITORY, an address, a path",
            id="search",
            compact=True,
            select_on_focus=False,
        )
        yield Slider("Show", FILTERS, id="filter")
        yield ModelTable()
        yield Static(id="about", markup=False)

    def show(self, choices: Sequence[ModelChoice]) -> None:
        self._choices = list(choices)
        self._fill()

    def judge(self, judged: Mapping[str, Judged]) -> None:
        """Of some, by name. They go into their lines; where only those that fit are shown, the list is made anew."""
        self._judged.update(judged)
        if self.query_one("#filter", Slider).value == "fits":
            self._fill()
            return
        table = self.query_one(ModelTable)
        for choice in self._choices:
            if choice.name in judged:
                table.judge(choice, judged[choice.name])
        self._describe()

    def forget_search(self) -> None:
        """For who wants another model."""
        self.query_one("#search", Input).value = ""

    @property
    def shown(self) -> list[ModelChoice]:
        """What search and filter leave."""
        kind = self.query_one("#filter", Slider).value
        return [choice for choice in self._found if self._is_of(choice, kind)]

    @property
    def _found(self) -> list[ModelChoice]:
        """What the search leaves."""
        searched = self._typed.lower().split()
        return [
            choice
            for choice in self._choices
            if all(word in f"{choice.name} {choice.title}".lower() for word in searched)
        ]

    @property
    def _typed(self) -> str:
        return self.query_one("#search", Input).value.strip()

    def _is_of(self, choice: ModelChoice, kind: object) -> bool:
        judged = self._judged.get(choice.name)
        return {
            "fits": isinstance(judged, Outlook) and judged.verdict == "fits",
            "disk": choice.path is not None or choice.kind == "partial",
            "catalogue": choice.kind in ("demo", "catalogue"),
        }.get(str(kind), True)

    def _fill(self) -> None:
        self.query_one(ModelTable).fill([(choice, self._judged.get(choice.name, ...)) for choice in self.shown])
        self._describe()

    @property
    def _marked(self) -> ModelChoice | None:
        name = self.query_one(ModelTable).marked
        return next((choice for choice in self._choices if choice.name == name), None)

    def _describe(self) -> None:
        marked = self._marked
        words = self._named().words if marked is None else about(marked, self._judged.get(marked.name))
        self.query_one("#about", Static).update(harmless(words))

    def _named(self) -> TypedName:
        """What is typed, apart from what the list shows."""
        if not self._typed:
            return TypedName(False, HIDDEN if self._choices else "")
        named = typed_name(self._typed, [choice.name for choice in self._choices])
        return TypedName(False, HIDDEN) if self._found and not named.is_taken else named

    @on(Input.Changed, "#search")
    @on(Slider.Changed, "#filter")
    def _filter(self) -> None:
        self._fill()

    @on(Input.Submitted, "#search")
    def _take_text(self, event: Input.Submitted) -> None:
        """A name as it is, where it is one; else the first that is found. What can be none is refused at once."""
        text, shown, named = self._typed, self.shown, self._named()
        listed = next((choice for choice in shown if choice.name == text), None)
        if listed is None and is_name(text) and named.is_taken:
            self.post_message(self.Chosen(named_choice(text)))
        elif shown:
            self.post_message(self.Chosen(listed or shown[0]))
        elif named.is_taken:
            self.post_message(self.Chosen(named_choice(text)))
        else:
            self.query_one("#about", Static).update(harmless(named.words))
            self.app.bell()

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
    return f"{head}\n{of}{own_words(judged.message)}{context}"
