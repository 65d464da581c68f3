"""How full the context is, and what the answer does now."""

from __future__ import annotations

from collections.abc import Sequence

from textual.content import Content
from textual.reactive import reactive
from textual.widget import Widget

from ktdesk.conversations.messages import Message

BAR_CELLS = 12
NEARLY_FULL = 0.85

LETTERS_PER_TOKEN = 4


def num_tokens_of(path: Sequence[Message], letters: int) -> int:
    """Counted as far as anybody did, and guessed for the rest, and for letters more.

    Of an answer that still comes or broke off the tokens are counted, but not yet those of its prompt.
    """
    num_tokens = 0
    for message in reversed(path):
        num_tokens += message.measured.num_tokens
        if message.measured.num_prompt_tokens:
            break
        if message.measured.num_answer_tokens:
            continue
        letters += len(message.content) + sum(len(item.text) for item in message.attachments)
    return num_tokens + letters // LETTERS_PER_TOKEN


class ContextMeter(Widget):
    """One line."""

    HELP = "Tokens of the conversation, of those that the model's context holds. What nobody counted yet is guessed."
    DEFAULT_CSS = """
    ContextMeter { height: 1; padding: 0 1; color: $foreground 70%; }
    ContextMeter:ansi { color: ansi_default; text-style: dim; }
    """
    num_tokens: reactive[int] = reactive(0)
    context: reactive[int] = reactive(0)
    """0: not known."""
    doing: reactive[str] = reactive("")
    """What goes on, at the left."""

    def render(self) -> Content:
        meter = self._meter()
        room = self.size.width - meter.cell_length
        doing = Content(self.doing).truncate(max(0, room - 1), ellipsis=True)
        return doing + Content(" " * max(0, room - doing.cell_length)) + meter

    def _meter(self) -> Content:
        if not self.context:
            return Content("")
        share = min(1.0, self.num_tokens / self.context)
        filled = round(share * BAR_CELLS)
        style = "$error" if share >= 1 else "$warning" if share > NEARLY_FULL else "$primary"
        bar = Content("█" * filled).stylize(style) + Content("░" * (BAR_CELLS - filled))
        numbers = f" {self.num_tokens:,} of {self.context:,}" if self.size.width >= 60 else f" {share:.0%}"
        return Content("context ") + bar + Content(numbers)
