"""A message as lines: who speaks, folded reasoning, the text, calls, and what it took."""

from __future__ import annotations

from dataclasses import dataclass

from rich.segment import Segment
from rich.style import Style

from ktdesk.amounts import bytes_text
from ktdesk.conversations.messages import Measured, Message
from ktdesk.tui.markdown.blocks import Line
from ktdesk.tui.markdown.growing import GrowingMarkdown
from ktdesk.tui.markdown.harmless import harmless
from ktdesk.tui.markdown.styles import BOLD, DIM, PLAIN, PLAIN_STYLES, UNDERLINED, MarkdownStyles
from ktdesk.tui.markdown.wrapping import wrap

MAX_QUESTION_LINES = 24
"""Of a question; the rest is folded."""
GUTTER = 2


@dataclass(frozen=True)
class EntryStyles:
    markdown: MarkdownStyles = PLAIN_STYLES
    reasoning: MarkdownStyles = PLAIN_STYLES
    user: Style = BOLD
    answer: Style = BOLD
    faint: Style = DIM
    error: Style = BOLD
    link: Style = UNDERLINED
    chosen: Style = BOLD
    base: Style = PLAIN
    """Beneath all of them."""


class Entry:
    """One message of the branch that is shown. `lines` draws it where something changed."""

    def __init__(self, message: Message, version: tuple[int, int] = (1, 1), *, unfolded: bool = False) -> None:
        self.message = message
        self.version = version
        """Which of how many versions."""
        self.waited_seconds = 0.0
        """For the first token, while there is none."""
        self._unfolded = unfolded
        self._content = GrowingMarkdown(self._code_click)
        self._reasoning = GrowingMarkdown(self._code_click)
        self._lines: list[Line] | None = None
        self._drawn_for: tuple[int, EntryStyles] | None = None

    @property
    def is_drawn(self) -> bool:
        return self._lines is not None

    @property
    def codes(self) -> list[str]:
        """Its blocks of code, without the reasoning's."""
        if not self.is_drawn and self.message.role == "assistant":
            self._content.set_text(self.message.content)
            self._content.lines(80, PLAIN_STYLES)
        return self._content.codes

    def change(self, message: Message, version: tuple[int, int] | None = None) -> None:
        """The same message later on, or in another version."""
        self.message, self.version = message, version or self.version
        self._lines = None

    def toggle(self) -> None:
        """Folds or unfolds."""
        self._unfolded = not self._unfolded
        self._lines = None

    def fold(self, *, unfolded: bool) -> None:
        if self._unfolded != unfolded:
            self.toggle()

    def estimated_height(self, width: int) -> int:
        """Without drawing it."""
        text = self.message.content
        return 3 + text.count("\n") + len(text) // max(20, width - 6) + len(self.message.attachments)

    def lines(self, width: int, styles: EntryStyles) -> list[Line]:
        """The last is empty."""
        if self._lines is None or self._drawn_for != (width, styles):
            self._lines = [*self._draw(width, styles), []]
            self._drawn_for = (width, styles)
        return self._lines

    def _draw(self, width: int, styles: EntryStyles) -> list[Line]:
        if self.message.role == "assistant":
            return self._draw_answer(width, styles)
        return self._draw_question(width, styles)

    def _draw_question(self, width: int, styles: EntryStyles) -> list[Line]:
        who = "You" if self.message.role == "user" else "Tool result"
        lines = [self._head(who, styles.user, styles)]
        text = wrap([(harmless(self.message.content), styles.markdown.text)], width) if self.message.content else []
        if len(text) > MAX_QUESTION_LINES and not self._unfolded:
            rest = f"▸ {len(text) - MAX_QUESTION_LINES:,} more lines"
            text = [*text[:MAX_QUESTION_LINES], [Segment(rest, styles.faint + self._click("toggle_fold"))]]
        lines += text
        for attachment in self.message.attachments:
            name = f"{harmless(attachment.name)}, {bytes_text(attachment.num_bytes)}"
            lines += wrap([("▤ ", styles.faint), (name, styles.link)], width)
        return lines

    def _draw_answer(self, width: int, styles: EntryStyles) -> list[Line]:
        message = self.message
        lines = [self._head(message.model or "Answer", styles.answer, styles)]
        if message.reasoning:
            lines += [*self._reasoning_lines(width, styles), []]
        if message.content:
            self._content.set_text(message.content, is_open=message.state == "streaming")
            lines += self._content.lines(width, styles.markdown)
        for call in message.calls:
            pieces = [
                ("⚙ ", styles.faint),
                (harmless(call.name), styles.answer),
                (f" {harmless(call.arguments)}", styles.faint),
            ]
            lines += wrap(pieces, width)
        if message.state == "streaming" and not (message.content or message.reasoning or message.calls):
            lines.append([Segment(f"reads the prompt … {self.waited_seconds:.0f} s", styles.faint)])
        if message.state == "failed":
            lines += wrap([(f"✗ {harmless(message.failure)}", styles.error)], width)
        end = end_words(message)
        return lines + (wrap([(end, styles.faint)], width) if end else [])

    def _head(self, who: str, style: Style, styles: EntryStyles) -> Line:
        line = [Segment(harmless(who), style)]
        number, count = self.version
        if count > 1:
            line += [
                Segment("  "),
                Segment("◂", styles.link + self._click("show_version", -1)),
                Segment(f" {number}/{count} ", styles.faint),
                Segment("▸", styles.link + self._click("show_version", 1)),
            ]
        return line

    def _reasoning_lines(self, width: int, styles: EntryStyles) -> list[Line]:
        """Folded, it costs one line, whatever comes."""
        is_thinking = self.message.state == "streaming" and not (self.message.content or self.message.calls)
        words = "Thinking" if is_thinking else "Thought for"
        sign = "▾" if self._unfolded else "▸"
        head = f"{sign} {words} {duration(self.message.reasoning_seconds)}"
        lines: list[Line] = [[Segment(head, styles.faint + self._click("toggle_fold"))]]
        if self._unfolded:
            self._reasoning.set_text(self.message.reasoning, is_open=is_thinking)
            bar = Segment("│ ", styles.faint)
            lines += [[bar, *line] for line in self._reasoning.lines(max(8, width - 2), styles.reasoning)]
        return lines

    def _click(self, action: str, *arguments: int) -> Style:
        given = ", ".join(map(str, (self.message.message_id, *arguments)))
        return Style.from_meta({"@click": f"{action}({given})"})

    def _code_click(self, number: int) -> str:
        return f"copy_code({self.message.message_id}, {number})"


def end_words(message: Message) -> str:
    """What stands under an answer."""
    if message.state == "streaming":
        return ""
    parts = [measured_words(message.measured)]
    if message.state == "stopped":
        parts.insert(0, "stopped")
    if message.finish_reason == "length":
        parts.insert(0, "cut off: the limit of tokens was reached")
    return " · ".join(part for part in parts if part)


def measured_words(measured: Measured) -> str:
    parts = []
    if measured.decode_tok_s:
        parts.append(f"{measured.decode_tok_s:.1f} tok/s")
    if measured.num_answer_tokens:
        parts.append(f"{measured.num_answer_tokens:,} tokens")
    if measured.first_token_seconds:
        parts.append(f"first after {duration(measured.first_token_seconds)}")
    if measured.num_prompt_tokens:
        rate = f" at {measured.prefill_tok_s:,.0f} tok/s" if measured.prefill_tok_s else ""
        parts.append(f"prompt {measured.num_prompt_tokens:,}{rate}")
        parts.append(f"{measured.num_cached_tokens:,} cached")
    return " · ".join(parts)


def duration(seconds: float) -> str:
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    return f"{whole} s" if whole < 120 else f"{whole // 60} min {whole % 60} s"
