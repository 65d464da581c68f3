"""What a setup does just now, in a line."""

from __future__ import annotations

from collections.abc import Sequence

from ktdesk.amounts import bytes_text
from ktdesk_wizard.setup.step import Advance, Step


def state_words(steps: Sequence[Step]) -> str:
    for step in steps:
        if step.state == "running":
            return f"{step.title} … {advance_words(step.advance)}"
        if step.state == "asking":
            return step.result
        if step.state == "cancelled":
            return "stopped: what was done is kept"
        if step.state == "failed":
            return f"{step.title}: failed"
    return "" if steps else "begins …"


def advance_words(advance: Advance | None) -> str:
    if advance is None:
        return ""
    if not advance.total:
        return advance.note
    of = f"{advance.total:.0f}" if advance.unit == "samples" else bytes_text(advance.total)
    return f"{advance.share:.0%} of {of}  {advance.note}"
