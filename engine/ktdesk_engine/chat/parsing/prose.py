"""Text between tags, without the white space that only sets it apart from them."""

from __future__ import annotations

from collections.abc import Iterator

from ktdesk_engine.chat.parsing.parts import Content, Part, Reasoning


class Prose:
    """Pieces of one kind. White space is held until it is known what comes after it."""

    def __init__(self, kind: type[Content] | type[Reasoning], *, strip_start: bool) -> None:
        self._kind = kind
        self._at_start = strip_start
        self._held = ""

    def say(self, text: str) -> Iterator[Part]:
        text = self._held + text
        if self._at_start:
            text = text.lstrip()
        sure = text.rstrip()
        self._held = text[len(sure) :]
        if sure:
            self._at_start = False
            yield self._kind(sure)

    def rest(self) -> Iterator[Part]:
        """White space at the very end, which is part of the text."""
        if self._held:
            yield self._kind(self._held)
            self._held = ""

    def begin_again(self) -> None:
        """After something else: white space around that is not part of the text."""
        self._held = ""
        self._at_start = True
