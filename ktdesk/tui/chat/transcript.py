"""The messages of a conversation, one below the other. Draws what is seen, and the rest when there is time."""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from textual.binding import Binding, BindingType
from textual.events import Blur, Click, Focus, Leave, MouseMove, Resize
from textual.geometry import Size
from textual.message import Message as TextualMessage
from textual.scroll_view import ScrollView
from textual.selection import Selection
from textual.strip import Strip
from textual.timer import Timer

from ktdesk.conversations.messages import Message
from ktdesk.tui.chat.entry import GUTTER, Entry, EntryStyles
from ktdesk.tui.keys import binding
from ktdesk.tui.markdown.blocks import Line
from ktdesk.tui.markdown.growing import plain_text
from ktdesk.tui.markdown.styles import MarkdownStyles

IDLE_SECONDS = 0.03
IDLE_BUDGET_SECONDS = 0.008
"""Of each IDLE_SECONDS, for drawing what nobody sees yet."""
MAX_STRIPS = 4096
PARTS = (
    *("user", "answer", "faint", "error", "chosen", "heading", "link", "code", "code-block"),
    *("keyword", "string", "number", "name", "comment"),
)
KNOWN_HEIGHT_OVERSCAN = 1
"""Heights above what is shown, drawn too."""


class Transcript(ScrollView, can_focus=True):
    """Follows its end while text comes, until the user scrolls away; at the end it follows again."""

    HELP = """\
The conversation. Up and down choose a message; what is done is done with that one.

A click on **copy** takes a block of code, a click on **Thought for** unfolds reasoning, the arrows beside a name go
through the versions. Text is marked with the mouse and copied with ctrl+c.
"""
    BINDINGS: ClassVar[list[BindingType]] = [
        binding("message.above", "choose(-1)", show=False),
        binding("message.below", "choose(1)", show=False),
        binding("message.copy", "ask('copy')"),
        binding("message.copy_code", "ask('copy_code')"),
        binding("message.again", "ask('again')"),
        binding("message.edit", "ask('edit')"),
        binding("message.fork", "ask('fork')"),
        binding("message.fold", "toggle_chosen"),
        binding("message.older", "ask('older')", show=False),
        binding("message.newer", "ask('newer')", show=False),
        binding("message.delete", "ask('delete')", show=False),
        Binding("pageup", "page(-1)", show=False),
        Binding("pagedown", "page(1)", show=False),
        Binding("home", "top", show=False),
        Binding("end", "follow", show=False),
    ]
    COMPONENT_CLASSES: ClassVar[set[str]] = {f"transcript--{part}" for part in PARTS}
    DEFAULT_CSS = """
    Transcript {
        background: $background; scrollbar-gutter: stable; overflow-x: hidden;
        .transcript--user { color: $primary; text-style: bold; }
        .transcript--answer { color: $success; text-style: bold; }
        .transcript--faint { color: $foreground; text-style: dim; }
        .transcript--error { color: $error; }
        .transcript--link { color: $primary; text-style: underline; }
        .transcript--heading { color: $accent; text-style: bold; }
        .transcript--code { color: $accent; }
        .transcript--code-block { background: $panel; }
        .transcript--keyword { color: $primary; }
        .transcript--string { color: $success; }
        .transcript--number { color: $accent; }
        .transcript--name { color: $warning; }
        .transcript--comment { color: $foreground; text-style: dim italic; }
        .transcript--chosen { color: $primary; }
    }
    """

    class Asked(TextualMessage):
        """The user wants something done with a message."""

        def __init__(self, what: str, message: Message, code: str = "") -> None:
            super().__init__()
            self.what = what
            self.message = message
            self.code = code
            """The block of code that was clicked on."""

    def __init__(self, *, unfolds_reasoning: bool = False) -> None:
        super().__init__()
        self.unfolds_reasoning = unfolds_reasoning
        self._entries: list[Entry] = []
        self._index: dict[int, int] = {}
        self._heights: list[int] = []
        self._exact: list[bool] = []
        self._ends: list[int] = []
        """In lines, from the top."""
        self._styles: EntryStyles | None = None
        self._chosen: int | None = None
        self.follows = True
        self.draw_seconds = 0.0
        """What the last change cost."""
        self._strips: dict[tuple[int, bool], tuple[Line, Strip]] = {}
        self._has_mouse = False
        """Where it was never moved here, nothing can be marked, and lines need not say where they are."""
        self._idle: Timer | None = None

    def on_mount(self) -> None:
        self._idle = self.set_interval(IDLE_SECONDS, self._draw_when_idle, pause=not self._entries)

    def show(self, messages: Sequence[tuple[Message, tuple[int, int]]]) -> None:
        """Another conversation, or another branch: each message and which of how many versions it is."""
        old = {entry.message.message_id: entry for entry in self._entries}
        self._entries = []
        for message, version in messages:
            entry = old.get(message.message_id) or Entry(message, version, unfolded=self.unfolds_reasoning)
            if (entry.message, entry.version) != (message, version):
                entry.change(message, version)
            self._entries.append(entry)
        self._index = {entry.message.message_id: index for index, entry in enumerate(self._entries)}
        if self._chosen is not None:
            self._chosen = min(self._chosen, len(self._entries) - 1) if self._entries else None
        self._measure_anew()
        if self.follows:
            self._scroll_to_end()

    def change(self, message: Message, waited_seconds: float = 0.0) -> None:
        """A message that is shown has grown. It is drawn if it is seen."""
        index = self._index.get(message.message_id)
        if index is None:
            return
        begun = time.thread_time()
        entry = self._entries[index]
        entry.waited_seconds = waited_seconds
        entry.change(message)
        if self._is_seen(index) or message.state != "streaming":
            self._settle()
            if self.follows:
                self._scroll_to_end()
            self.refresh()
        self.draw_seconds = time.thread_time() - begun

    @property
    def chosen(self) -> Message | None:
        """The message that the user chose, or the last."""
        if not self._entries:
            return None
        return self._entries[-1 if self._chosen is None else self._chosen].message

    def choose(self, message_id: int) -> None:
        """And show it."""
        if message_id in self._index:
            self._chosen = self._index[message_id]
            self._show_chosen()

    def codes_of(self, message: Message) -> list[str]:
        index = self._index.get(message.message_id)
        return [] if index is None else self._entries[index].codes

    def fold_all(self, *, unfolded: bool) -> None:
        self.unfolds_reasoning = unfolded
        for entry in self._entries:
            if entry.message.role == "assistant":
                entry.fold(unfolded=unfolded)
        self._measure_anew()
        if self.follows:
            self._scroll_to_end()

    def render_line(self, y: int) -> Strip:
        line_number = self.scroll_offset.y + y
        index = bisect_right(self._ends, line_number)
        styles = self._entry_styles
        if index >= len(self._entries):
            return Strip.blank(self.size.width, styles.base)
        lines = self._entries[index].lines(self._text_width, styles)
        inner = line_number - self._ends[index] + self._heights[index]
        line = lines[inner] if inner < len(lines) else []
        is_chosen = index == self._chosen and self.has_focus and inner < len(lines) - 1
        strip = self._strip(line, styles, is_chosen=is_chosen)
        if not self._has_mouse:
            return strip
        return self._with_selection(strip, line_number).apply_offsets(0, line_number)

    def _strip(self, line: Line, styles: EntryStyles, *, is_chosen: bool) -> Strip:
        """Lines move up as text comes, and most stay what they were: so their strips are kept."""
        key = (id(line), is_chosen)
        known = self._strips.get(key)
        if known is not None and known[0] is line:
            return known[1]
        if len(self._strips) > MAX_STRIPS:
            self._strips.clear()
        gutter = Segment("▌ " if is_chosen else "  ", styles.chosen)
        strip = Strip([gutter, *line]).adjust_cell_length(self.size.width, styles.base).apply_style(styles.base)
        self._strips[key] = (line, strip)
        return strip

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        lines: list[str] = []
        for entry in self._entries:
            lines += ["  " + plain_text(line) for line in entry.lines(self._text_width, self._entry_styles)]
        selected = selection.extract("\n".join(lines))
        return "\n".join(line.removeprefix("  ").rstrip() for line in selected.split("\n")), "\n"

    def selection_updated(self, selection: Selection | None) -> None:
        self.refresh()

    def notify_style_update(self) -> None:
        super().notify_style_update()
        self._styles = None
        self._strips.clear()
        if self.is_mounted and self._entries:
            self._measure_anew()

    def on_mouse_move(self, event: MouseMove) -> None:
        if not self._has_mouse:
            self._has_mouse = True
            self.refresh()

    def on_leave(self, event: Leave) -> None:
        if self.text_selection is None:
            self._has_mouse = False

    def on_resize(self, event: Resize) -> None:
        self._strips.clear()
        if self._entries:
            self._measure_anew()
            if self.follows:
                self._scroll_to_end()

    def on_focus(self, event: Focus) -> None:
        if self._chosen is None and self._entries:
            self._chosen = len(self._entries) - 1
        self.refresh()

    def on_blur(self, event: Blur) -> None:
        self._chosen = None
        self.refresh()

    def on_click(self, event: Click) -> None:
        index = bisect_right(self._ends, self.scroll_offset.y + event.y)
        if index < len(self._entries):
            self._chosen = index
            self.refresh()

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        super().watch_scroll_y(old_value, new_value)
        if round(old_value) != round(new_value):
            self.follows = new_value >= self.max_scroll_y - 1
            self._settle()

    def action_follow(self) -> None:
        self.follows = True
        self._scroll_to_end()

    def action_top(self) -> None:
        self.scroll_to(y=0, animate=False, immediate=True, force=True)

    def action_page(self, step: int) -> None:
        """A line stays to be seen. At once: moving there smoothly would take a dozen pictures."""
        y = self.scroll_offset.y + step * max(1, self.size.height - 1)
        self.scroll_to(y=y, animate=False, immediate=True, force=True)

    def action_choose(self, step: int) -> None:
        if not self._entries:
            return
        chosen = len(self._entries) - 1 if self._chosen is None else self._chosen + step
        if chosen >= len(self._entries):
            self.action_follow()
        self._chosen = min(max(chosen, 0), len(self._entries) - 1)
        self._show_chosen()

    def action_ask(self, what: str) -> None:
        if self.chosen is not None:
            self.post_message(self.Asked(what, self.chosen))

    def action_toggle_chosen(self) -> None:
        if self.chosen is not None:
            self.action_toggle_fold(self.chosen.message_id)

    def action_toggle_fold(self, message_id: int) -> None:
        if message_id in self._index:
            self._entries[self._index[message_id]].toggle()
            self._settle()
            self.refresh()

    def action_show_version(self, message_id: int, step: int) -> None:
        if message_id in self._index:
            message = self._entries[self._index[message_id]].message
            self.post_message(self.Asked("older" if step < 0 else "newer", message))

    def action_copy_code(self, message_id: int, number: int) -> None:
        if message_id in self._index:
            entry = self._entries[self._index[message_id]]
            if number < len(entry.codes):
                self.post_message(self.Asked("copy_code", entry.message, entry.codes[number]))

    @property
    def _text_width(self) -> int:
        return max(8, self.scrollable_content_region.width - GUTTER - 1)

    @property
    def _entry_styles(self) -> EntryStyles:
        if self._styles is None:
            self._styles = self._make_styles()
        return self._styles

    def _make_styles(self) -> EntryStyles:
        def style(name: str) -> Style:
            return self.get_component_rich_style(f"transcript--{name}", partial=True)

        faint = style("faint")
        drawn = MarkdownStyles(
            heading=style("heading"),
            code=style("code"),
            code_block=style("code-block"),
            link=style("link"),
            faint=faint,
            keyword=style("keyword"),
            string=style("string"),
            number=style("number"),
            name=style("name"),
            comment=style("comment"),
        )
        thought = MarkdownStyles(text=faint, heading=faint, code=faint, code_block=faint, link=faint, faint=faint)
        return EntryStyles(
            drawn,
            thought,
            style("user"),
            style("answer"),
            faint,
            style("error"),
            style("link"),
            style("chosen"),
            self.rich_style,
        )

    def _is_seen(self, index: int) -> bool:
        top = self._ends[index] - self._heights[index]
        return top <= self.scroll_offset.y + self.size.height and self._ends[index] >= self.scroll_offset.y

    def _measure_anew(self) -> None:
        """All heights are guessed again, and what is seen is drawn."""
        width = self._text_width
        self._exact = [False] * len(self._entries)
        self._heights = [entry.estimated_height(width) for entry in self._entries]
        self._ends = list(accumulate(self._heights))
        if self.follows and self._ends:  # what is seen are the last
            self._draw_from_the_end(width)
        self._settle()
        if self._idle is not None:
            self._idle.resume()
        self.refresh()

    def _draw_from_the_end(self, width: int) -> None:
        room = self.size.height * (1 + KNOWN_HEIGHT_OVERSCAN)
        for index in reversed(range(len(self._entries))):
            room -= self._draw(index, width)
            if room < 0:
                break
        self._ends = list(accumulate(self._heights))

    def _settle(self) -> None:
        """Draws what is seen, and keeps it where it is while heights above it turn out to be others."""
        if not self._entries or not self.size.height:
            self.virtual_size = Size(self.size.width, self._ends[-1] if self._ends else 0)
            return
        width = self._text_width
        for _ in range(8):  # drawing moves what is seen, and that may have to be drawn
            first, last = self._seen_range()
            pending = [i for i in range(first, last + 1) if not (self._exact[i] and self._entries[i].is_drawn)]
            if not pending:
                break
            self._draw_all(pending, width)
        height = self._ends[-1]
        if self.virtual_size.height != height or self.virtual_size.width != self.size.width:
            self.virtual_size = Size(self.size.width, height)

    def _draw_all(self, indexes: Sequence[int], width: int) -> None:
        anchor = min(bisect_right(self._ends, self.scroll_offset.y), len(self._entries) - 1)
        top = self._ends[anchor] - self._heights[anchor]
        for index in indexes:
            self._draw(index, width)
        self._ends = list(accumulate(self._heights))
        moved = self._ends[anchor] - self._heights[anchor] - top
        if moved and not self.follows:
            self.virtual_size = Size(self.size.width, self._ends[-1])
            self.scroll_to(y=self.scroll_offset.y + moved, animate=False, immediate=True, force=True)

    def _draw(self, index: int, width: int) -> int:
        self._heights[index] = len(self._entries[index].lines(width, self._entry_styles))
        self._exact[index] = True
        return self._heights[index]

    def _seen_range(self) -> tuple[int, int]:
        top = self.scroll_offset.y
        last = len(self._entries) - 1
        return min(bisect_right(self._ends, top), last), min(bisect_right(self._ends, top + self.size.height), last)

    def _draw_when_idle(self) -> None:
        begun = time.perf_counter()
        pending = [index for index, is_exact in enumerate(self._exact) if not is_exact]
        if not pending:
            assert self._idle is not None
            self._idle.pause()
            return
        width = self._text_width
        done: list[int] = []
        for index in reversed(pending):
            self._entries[index].lines(width, self._entry_styles)
            done.append(index)
            if time.perf_counter() - begun > IDLE_BUDGET_SECONDS:
                break
        self._draw_all(done, width)
        self._settle()
        if self.follows:
            self._scroll_to_end()

    def _show_chosen(self) -> None:
        assert self._chosen is not None
        self._settle()
        top, end = self._ends[self._chosen] - self._heights[self._chosen], self._ends[self._chosen]
        view = self.scroll_offset.y, self.scroll_offset.y + self.size.height
        if top < view[0] or self._heights[self._chosen] > self.size.height:
            self.scroll_to(y=top, animate=False, immediate=True, force=True)
        elif end > view[1]:
            self.scroll_to(y=end - self.size.height, animate=False, immediate=True, force=True)
        self.refresh()

    def _scroll_to_end(self) -> None:
        self.follows = True
        self.scroll_end(animate=False, immediate=True, x_axis=False, force=True)
        self.follows = True

    def _with_selection(self, strip: Strip, line_number: int) -> Strip:
        selection = self.text_selection
        span = None if selection is None else selection.get_span(line_number)
        if span is None:
            return strip
        begin, end = span
        first = strip.index_to_cell_position(begin)
        last = strip.cell_length if end == -1 else strip.index_to_cell_position(end)
        style = self.screen.get_component_rich_style("screen--selection")
        before, marked, after = strip.crop(0, first), strip.crop(first, last), strip.crop(last)
        painted = Strip([Segment(segment.text, (segment.style or Style()) + style) for segment in marked])
        return Strip.join([before, painted, after])
