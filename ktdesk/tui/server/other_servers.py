"""Servers of this user that run beside the one that the app is linked to: each can be used, or stopped."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from textual.binding import BindingType
from textual.message import Message
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from ktdesk.tui.keys import binding
from ktdesk.tui.server.server_words import other_words

if TYPE_CHECKING:
    from ktdesk.server_records import ServerRecord


class OtherServers(OptionList):
    """Hidden where there are none."""

    HELP = """Other servers of yours that run, and have their model in memory. Enter links the app to one, delete stops
it: it finishes the answers that it gives, for ten seconds at most."""
    BINDINGS: ClassVar[list[BindingType]] = [binding("servers.stop", "stop")]
    DEFAULT_CSS = """
    OtherServers { height: auto; max-height: 6; display: none; margin-top: 1; padding: 0 1; }
    OtherServers, OtherServers:focus { border: none; }
    OtherServers > .option-list--option { padding: 0; }
    OtherServers.-shown { display: block; }
    """

    class Stopped(Message):
        """The user wants one to end."""

        def __init__(self, record: ServerRecord) -> None:
            super().__init__()
            self.record = record

    def __init__(self) -> None:
        super().__init__(markup=False)
        self.records: list[ServerRecord] = []
        self.ending: set[int] = set()
        """Process ids of those that were told to stop."""
        self._shown: list[str] = []

    def show(self, records: Sequence[ServerRecord]) -> None:
        self.records = list(records)
        self.set_class(bool(records), "-shown")
        contents = [other_words(record, is_ending=record.pid in self.ending) for record in records]
        if [content.plain for content in contents] == self._shown:
            return
        self._shown = [content.plain for content in contents]
        highlighted = self.highlighted or 0
        self.clear_options()
        self.add_options([Option(content) for content in contents])
        if records:
            self.highlighted = min(highlighted, len(records) - 1)

    def action_stop(self) -> None:
        if self.highlighted is not None:
            self.post_message(self.Stopped(self.records[self.highlighted]))
