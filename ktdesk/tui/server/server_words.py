"""What can be said of a server: of the one that the app is linked to, and of others in a line."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from textual.content import Content

from ktdesk.amounts import counted
from ktdesk.tui.markdown.harmless import harmless

if TYPE_CHECKING:
    from ktdesk.model_link import LinkState
    from ktdesk.server_records import ServerRecord
    from ktdesk.watching import Moment

NO_SERVER = "The app is not linked to a server. Chat starts one with a model; so does `ktdesk serve MODEL`."
LABEL_WIDTH = 10


def facts_of(record: ServerRecord, moment: Moment | None, state: LinkState, quality: Sequence[str] = ()) -> Content:
    """quality: what options that change answers were found to cost, a line each."""
    rows = {
        "Ended": state.reason if state.stage in ("gone", "failed") else "",
        "Address": record.url,
        "Key": "asked for (KTDESK_API_KEY)" if record.needs_key else "none is needed",
        "Model": f"{record.model}  {record.path}",
        "Options": record.changed_words or "none were given",
        "Quality": f"\n{'':<{LABEL_WIDTH}}".join(quality),
        "Clients": "the server does not answer" if moment is None else counted(moment.num_open_requests, "connection"),
        "Process": f"{record.pid}, for {_age(record)}",
        "Log": record.log,
    }
    return Content("\n").join(
        Content.assemble((f"{name:<{LABEL_WIDTH}}", "bold"), harmless(text)) for name, text in rows.items() if text
    )


def no_server_words(state: LinkState) -> str:
    """Where the app is linked to none."""
    if state.is_waiting:
        return f"{harmless(state.model)} starts …"
    if state.stage in ("gone", "failed"):
        return f"{harmless(state.model)}: {harmless(state.reason)}. Start again loads it."
    return NO_SERVER


def other_words(record: ServerRecord, *, is_ending: bool) -> Content:
    ends = "  ends, once its answers are done" if is_ending else ""
    text = f"{record.port:<7}{record.model}, for {_age(record)}  {record.changed_words}"
    return Content(harmless(text)) + Content.styled(ends, "$warning")


def _age(record: ServerRecord) -> str:
    """In the largest unit of which there are at least two."""
    seconds = max(0.0, time.time() - record.started)
    for unit, size in (("day", 86_400), ("hour", 3_600)):
        if seconds >= 2 * size:
            return counted(round(seconds / size), unit)
    return counted(round(seconds / 60), "minute")
