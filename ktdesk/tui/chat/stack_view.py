"""Messages in a view that scrolls: draws what is seen, and the rest when there is time, and follows its end."""

from __future__ import annotations

import time
from collections.abc import Sequence

from rich.segment import Segment
from rich.style import Style
from textual.events import Leave, MouseMove, Resize
from textual.geometry import Region, Size
from textual.scroll_view import ScrollView
from textual.selection import Selection
from textual.strip import Strip
from textual.timer import Timer
from textual.widget import Widget

from ktdesk.tui.chat.entry import GUTTER, EntryStyles
from ktdesk.tui.chat.stack import Stack
from ktdesk.tui.chat.transcript_styles import entry_styles
from ktdesk.tui.markdown.blocks import Line
from ktdesk.tui.markdown.growing import plain_text

IDLE_SECONDS = 0.03
IDLE_BUDGET_SECONDS = 0.008
"""Of each IDLE_SECONDS, for drawing what nobody sees yet."""
MAX_STRIPS = 4096
KNOWN_HEIGHT_OVERSCAN = 1
"""Heights above what is shown, drawn too."""


class StackView(ScrollView):
    """Follows its end while text comes, until the user scrolls away; at the end it follows again."""

    def __init__(self) -> None:
        super().__init__()
        self._stack = Stack()
        self._styles: EntryStyles | None = None
        self._chosen: int | None = None
        """The message that is marked while this has the focus."""
        self.follows = True
        self._strips: dict[tuple[int, bool], tuple[Line, Strip]] = {}
        self._drawn_width = 0
        self._has_mouse = False
        """Where it was never moved here, nothing can be marked, and lines need not say where they are."""
        self._idle: Timer | None = None

    def on_mount(self) -> None:
        self._idle = self.set_interval(IDLE_SECONDS, self._draw_when_idle, pause=not len(self._stack))

    def render_lines(self, crop: Region) -> list[Strip]:
        """Strips as they are kept: what the terminal is sent for one is kept in it, too. Textual's own way makes new
        ones of them, for borders and padding, which there are none of, and for the link beneath the mouse."""
        if self.hover_style._link_id:
            return super().render_lines(crop)
        background = self.background_colors[1]
        strips = [self.render_line(y) for y in crop.line_range]
        for line_filter in self.get_line_filters():
            strips = [strip.apply_filter(line_filter, background) for strip in strips]
        if crop.column_span != (0, self.size.width):
            strips = [strip.crop(*crop.column_span) for strip in strips]
        return strips

    def render_line(self, y: int) -> Strip:
        line_number = self.scroll_offset.y + y
        line, is_chosen = self._line_at(line_number)
        styles = self._entry_styles
        strip = Strip.blank(self.size.width, styles.base) if line is None else self._strip(line, styles, is_chosen)
        if not self._has_mouse:
            return strip
        return self._with_selection(strip, line_number).apply_offsets(0, line_number)

    def _line_at(self, line_number: int) -> tuple[Line | None, bool]:
        """And whether it is of the chosen message. None below the last."""
        index = self._stack.at(line_number)
        if index >= len(self._stack):
            return None, False
        lines = self._stack.entries[index].lines(self._text_width, self._entry_styles)
        inner = line_number - self._stack.top(index)
        is_chosen = index == self._chosen and self.has_focus and inner < len(lines) - 1
        return lines[inner] if inner < len(lines) else None, is_chosen

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        lines: list[str] = []
        for entry in self._stack.entries:
            lines += ["  " + plain_text(line) for line in entry.lines(self._text_width, self._entry_styles)]
        selected = selection.extract("\n".join(lines))
        return "\n".join(line.removeprefix("  ").rstrip() for line in selected.split("\n")), "\n"

    def selection_updated(self, selection: Selection | None) -> None:
        self.refresh()

    def notify_style_update(self) -> None:
        super().notify_style_update()
        self._styles = None
        self._strips.clear()
        if self.is_mounted and len(self._stack):
            self._measure_anew()

    def on_mouse_move(self, event: MouseMove) -> None:
        if not self._has_mouse:
            self._has_mouse = True
            self.refresh()

    def on_leave(self, event: Leave) -> None:
        if self.text_selection is None:
            self._has_mouse = False

    def on_resize(self, event: Resize) -> None:
        """Another height alone, as a notice leaves, changes no line."""
        is_as_wide, self._drawn_width = self._drawn_width == self.size.width, self.size.width
        if not is_as_wide:
            self._strips.clear()
        if len(self._stack):
            if is_as_wide:
                self._settle()
                self.refresh()
            else:
                self._measure_anew()
            if self.follows:
                self._scroll_to_end()

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

    @property
    def _text_width(self) -> int:
        return max(8, self.scrollable_content_region.width - GUTTER - 1)

    @property
    def _entry_styles(self) -> EntryStyles:
        if self._styles is None:
            self._styles = entry_styles(self)
        return self._styles

    def _is_seen(self, index: int) -> bool:
        top = self.scroll_offset.y
        return self._stack.top(index) <= top + self.size.height and self._stack.end(index) >= top

    def _shown_lines(self) -> list[Line | None]:
        """Where nothing has to be drawn for it."""
        top = self.scroll_offset.y
        if not len(self._stack) or self._stack.pending(self._stack.between(top, top + self.size.height)):
            return []
        return [self._line_at(top + y)[0] for y in range(self.size.height)]

    def _refresh_from(self, before: Sequence[Line | None]) -> None:
        """Rows that show another line than before: lines that are drawn for good stay the same objects."""
        now = self._shown_lines()
        if len(now) != len(before):
            self.refresh()
            return
        changed = [y for y, (old, new) in enumerate(zip(before, now, strict=True)) if old is not new]
        if changed:
            self.refresh(Region(0, changed[0], self.size.width, changed[-1] + 1 - changed[0]))

    def _strip(self, line: Line, styles: EntryStyles, is_chosen: bool) -> Strip:
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

    def _measure_anew(self) -> None:
        """All heights are guessed again, and what is seen is drawn."""
        width = self._text_width
        self._stack.guess(width)
        if self.follows:  # what is seen are the last
            room = self.size.height * (1 + KNOWN_HEIGHT_OVERSCAN)
            self._stack.draw_from_the_end(room, width, self._entry_styles)
        self._settle()
        if self._idle is not None:
            self._idle.resume()
        self.refresh()

    def _settle(self) -> None:
        """Draws what is seen, and keeps it where it is while heights above it turn out to be others."""
        if len(self._stack) and self.size.height:
            for _ in range(8):  # drawing moves what is seen, and that may have to be drawn
                top = self.scroll_offset.y
                pending = self._stack.pending(self._stack.between(top, top + self.size.height))
                if not pending:
                    break
                self._draw(pending)
        self._resize_virtually()

    def _resize_virtually(self) -> None:
        """Without another layout of the screen, unless the scrollbar comes or goes: no other widget moves because there
        are more lines here."""
        size = Size(self.size.width, self._stack.height)
        if self.virtual_size != size:
            self.set_reactive(Widget.virtual_size, size)
            self._scroll_update(size)

    def _draw(self, indexes: Sequence[int]) -> None:
        anchor = min(self._stack.at(self.scroll_offset.y), len(self._stack) - 1)
        top = self._stack.top(anchor)
        self._stack.draw(indexes, self._text_width, self._entry_styles)
        moved = self._stack.top(anchor) - top
        if moved and not self.follows:
            self._resize_virtually()
            self.scroll_to(y=self.scroll_offset.y + moved, animate=False, immediate=True, force=True)

    def _draw_when_idle(self) -> None:
        begun = time.perf_counter()
        guessed = self._stack.guessed()
        if not guessed:
            assert self._idle is not None
            self._idle.pause()
            return
        done: list[int] = []
        for index in reversed(guessed):
            self._stack.entries[index].lines(self._text_width, self._entry_styles)
            done.append(index)
            if time.perf_counter() - begun > IDLE_BUDGET_SECONDS:
                break
        self._draw(done)
        self._settle()
        if self.follows:
            self._scroll_to_end()

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
