"""Pastes with control characters in them: text, and no keys."""

from __future__ import annotations

import pytest
from textual.events import Key, Paste

from ktdesk.tui.pasting import BEGIN, END, PasteFilter, PasteSafeParser

WILD = "one\x1b[31mtwo\x07\x11 three\x00\n\tfour\x9b\x7f"
PLAIN = "one[31mtwo three\n\tfour"


@pytest.mark.parametrize("size", [1, 2, 5, 7, 1000])
def test_a_paste_loses_what_steers_however_it_is_cut(size: int) -> None:
    whole = f"a{BEGIN}{WILD}{END}b\x1b[A{BEGIN}{END}"
    cleaner = PasteFilter()
    cleaned = "".join(cleaner.clean(whole[at : at + size]) for at in range(0, len(whole), size))
    assert cleaned == f"a{BEGIN}{PLAIN}{END}b\x1b[A{BEGIN}{END}"


def test_an_escape_that_is_typed_does_not_wait() -> None:
    assert PasteFilter().clean("\x1b") == "\x1b"


@pytest.mark.parametrize("size", [1, 3, 1000])
def test_a_paste_with_an_escape_in_it_presses_no_key(size: int) -> None:
    whole = f"{BEGIN}{WILD}{END}x"
    parser = PasteSafeParser()
    events = [event for at in range(0, len(whole), size) for event in parser.feed(whole[at : at + size])]
    assert [event.text for event in events if isinstance(event, Paste)] == [PLAIN]
    assert [event.key for event in events if isinstance(event, Key)] == ["x"]
