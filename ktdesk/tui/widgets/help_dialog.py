"""Help for what has the focus: what it is, and every key that counts there. It scrolls; Escape or F1 closes it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from textual.app import App, ComposeResult
from textual.containers import VerticalScroll
from textual.content import Content
from textual.screen import Screen
from textual.widget import Widget
from textual.widgets import Markdown, Static

from ktdesk.tui.keys import EVERYWHERE, KEYS
from ktdesk.tui.widgets.dialog import Dialog

KEYS_WIDTH = 16
HERE = "This part"
_ORDER = {EVERYWHERE: 1, HERE: 2}
"""After those of the place."""
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
        yield Static(keys_content(self._groups))

    def on_mount(self) -> None:
        frame = self.query_one(".dialog", VerticalScroll)
        frame.border_subtitle = "arrows and page keys scroll, esc closes"
        frame.can_focus = True
        frame.focus()


def keys_content(groups: Groups) -> Content:
    parts = []
    for group, keys in groups.items():
        lines = [Content.assemble((f"{shown:>{KEYS_WIDTH}}", "bold $accent"), f"  {what}") for shown, what in keys]
        parts.append(Content("\n").join([Content.styled(group, "bold underline"), *lines]))
    return Content("\n\n").join(parts)


def help_text(focused: Widget | None) -> str:
    """Of the part itself, or of what it is in."""
    for node in () if focused is None else focused.ancestors_with_self:
        if isinstance(node, Widget) and node.HELP:
            return " ".join(node.HELP.split())
    return ""


def key_groups(screen: Screen[object]) -> Groups:
    """Those that count now: the app's own, then what any part of this kind knows."""
    groups: dict[str, dict[str, tuple[list[str], str]]] = {}
    for node, shown, enabled, _ in screen.active_bindings.values():
        if not enabled or shown.system or not shown.description:
            continue
        general = EVERYWHERE if isinstance(node, (Screen, App)) else HERE
        group = groups.setdefault(KEYS[shown.id].group if shown.id in KEYS else general, {})
        names, _ = group.setdefault(shown.action, ([], shown.description))
        names.append(screen.app.get_key_display(shown))
    return {
        group: [(" ".join(dict.fromkeys(names)), what) for names, what in actions.values()]
        for group, actions in sorted(groups.items(), key=lambda item: _ORDER.get(item[0], 0))
    }
