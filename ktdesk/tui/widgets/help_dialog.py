"""Help for what has the focus: what it is, and every key that counts there. It scrolls; Escape or F1 closes it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from textwrap import wrap

from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import VerticalScroll
from textual.content import Content
from textual.screen import Screen
from textual.widget import Widget
from textual.widgets import DataTable, Input, Markdown, OptionList, Static, TextArea

from ktdesk.tui.keys import EVERYWHERE, KEYS
from ktdesk.tui.widgets.dialog import Dialog

NARROW = 50
"""Cells, below which keys have less room beside their words."""
HERE = "This part"
TEXT_FIELD, LIST = "In the text field", "In the list"
_ORDER = {EVERYWHERE: 1, TEXT_FIELD: 2, LIST: 2}
"""After those of the place."""
NEXT_PART = (("tab", "To the next part"), ("shift+tab", "To the part before"), ("ctrl+c", "Copies text that is marked"))
EDITING: tuple[tuple[str, str], ...] = (
    ("arrows, home, end", "Move the cursor"),
    ("ctrl+left, ctrl+right", "Move it by a word"),
    ("shift and these", "Mark text"),
    ("ctrl+x, ctrl+v", "Cut, paste"),
    ("ctrl+w", "Deletes the word before"),
    ("ctrl+u, ctrl+k", "Delete to the line's beginning, its end"),
)
UNDOING = (("ctrl+z, ctrl+y", "Undo, do again"),)
CHOOSING = (("up, down", "Go through it"), ("home, end", "To its beginning, its end"), ("enter", "Takes the line"))
GENERAL: tuple[tuple[type[Widget], str, tuple[tuple[str, str], ...]], ...] = (
    (TextArea, TEXT_FIELD, EDITING + UNDOING),
    (Input, TEXT_FIELD, EDITING),
    (OptionList, LIST, CHOOSING),
    (DataTable, LIST, CHOOSING),
)
"""What parts of a kind know without us, in words of ours."""
SHOWN = {"escape": "esc", "pageup": "page up", "pagedown": "page down"}
Groups = Mapping[str, Sequence[tuple[str, str]]]
"""By where they count: keys, and what they do."""


class HelpDialog(Dialog[None]):
    DEFAULT_CSS = """
    HelpDialog {
        Markdown { height: auto; padding: 0; margin: 0; background: transparent; }
        MarkdownParagraph { margin: 0 0 1 0; }
        Static { height: auto; }
    }
    """

    def __init__(self, text: str, groups: Groups) -> None:
        super().__init__("Help")
        self._text, self._groups = text, groups

    def compose_body(self) -> ComposeResult:
        if self._text:
            yield Markdown(self._text)
        yield Static(id="keys")

    def on_resize(self) -> None:
        keys = self.query_one("#keys", Static)
        keys.update(keys_content(self._groups, max(20, keys.size.width or self.app.size.width - 6)))

    def on_mount(self) -> None:
        frame = self.query_one(".dialog", VerticalScroll)
        frame.border_subtitle = "arrows and page keys scroll, esc closes"
        frame.can_focus = True
        frame.focus()


def keys_content(groups: Groups, width: int) -> Content:
    parts = []
    for group, keys in groups.items():
        lines = [line for shown, what in keys for line in _key_lines(shown, what, width)]
        parts.append(Content("\n").join([Content.styled(group, "bold underline"), *lines]))
    return Content("\n\n").join(parts)


def _key_lines(shown: str, what: str, width: int) -> list[Content]:
    """Words that need more than a line go on beneath themselves; keys that need more room have a line of their own."""
    column = 10 if width < NARROW else 21
    first, *rest = wrap(what, max(8, width - column - 2))
    head = Content.styled(f"{shown:>{column}}", "bold $accent")
    indent = " " * (column + 2)
    if len(shown) > column:
        return [head, *(Content(indent + line) for line in (first, *rest))]
    return [Content.assemble(head, f"  {first}"), *(Content(indent + line) for line in rest)]


def help_text(focused: Widget | None) -> str:
    """Of the part itself, or of what it is in."""
    for node in () if focused is None else focused.ancestors_with_self:
        if isinstance(node, Widget) and node.HELP:
            return " ".join(node.HELP.split())
    return ""


def key_groups(screen: Screen[object]) -> Groups:
    """Those that count now: of the part that has the focus, of the place, everywhere; then what its kind knows."""
    order = {name: number for number, name in enumerate(KEYS)}
    active = sorted(screen.active_bindings.values(), key=lambda each: order.get(each.binding.id or "", 0))
    groups: dict[str, dict[str, tuple[list[str], str]]] = {}
    for node, shown, enabled, _ in active:
        if not enabled or not shown.description or not _is_own(node, shown):
            continue
        key = KEYS.get(shown.id or "")
        group = groups.setdefault(HERE if key is None else key.group, {})
        words = shown.description if key is None else key.more or key.what
        names, _ = group.setdefault(shown.action, ([], words))
        names.append(SHOWN.get(shown.key, shown.key))
    found = {group: [(", ".join(names), what) for names, what in actions.values()] for group, actions in groups.items()}
    found.setdefault(EVERYWHERE, []).extend(NEXT_PART)
    focused = screen.focused
    for kind, group_name, keys in GENERAL:
        if isinstance(focused, kind):
            found.setdefault(group_name, []).extend(keys)
            break
    return dict(sorted(found.items(), key=lambda item: _ORDER.get(item[0], 0)))


def _is_own(node: object, shown: Binding) -> bool:
    """Not of the kind of widget that ours is made from."""
    if shown.id in KEYS:
        return True
    for kind in type(node).__mro__:
        bindings = kind.__dict__.get("BINDINGS", ())
        if any(isinstance(each, Binding) and each.action == shown.action for each in bindings):
            return kind.__module__.startswith("ktdesk")
    return False
