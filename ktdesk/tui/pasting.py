"""What is pasted is text, whatever is in it: no key is pressed by it."""

from __future__ import annotations

import re
from collections.abc import Iterable

from textual._xterm_parser import XTermParser
from textual.drivers import linux_driver
from textual.message import Message

BEGIN, END = "\x1b[200~", "\x1b[201~"
"""What terminals put around it."""
STEERS = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
"""Control characters but for tabs and ends of lines."""


class PasteFilter:
    """Takes control characters out of pastes. Fed with pieces as they are read, cut anywhere."""

    def __init__(self) -> None:
        self._is_pasting = False
        self._last = ""
        """The end of what came before, in which a mark may begin."""

    def clean(self, text: str) -> str:
        parts = []
        while text:
            part, text = self._pasted(text) if self._is_pasting else self._typed(text)
            parts.append(part)
        return "".join(parts)

    def _typed(self, text: str) -> tuple[str, str]:
        """As it is, until a paste begins: a key that is an escape must not wait for what follows."""
        known = self._last + text
        begin = known.find(BEGIN)
        if begin < 0:
            self._last = known[-len(BEGIN) + 1 :]
            return text, ""
        self._is_pasting, self._last = True, ""
        end = begin + len(BEGIN) - (len(known) - len(text))
        return text[:end], text[end:]

    def _pasted(self, text: str) -> tuple[str, str]:
        known = self._last + text
        end = known.find(END)
        if end >= 0:
            self._is_pasting, self._last = False, ""
            return STEERS.sub("", known[:end]) + END, known[end + len(END) :]
        held = next((size for size in range(len(END) - 1, 0, -1) if known.endswith(END[:size])), 0)
        self._last = known[len(known) - held :]
        return STEERS.sub("", known[: len(known) - held]), ""


class PasteSafeParser(XTermParser):
    """An escape within a paste would end it for textual, and what follows would be keys."""

    def __init__(self, debug: bool = False) -> None:
        super().__init__(debug)
        self._pastes = PasteFilter()

    def feed(self, data: str) -> Iterable[Message]:
        """Nothing is the end of all input."""
        cleaned = self._pastes.clean(data)
        return super().feed(cleaned) if cleaned or not data else ()


def make_pastes_safe() -> None:
    """In this process. The driver makes its parser itself and takes no other."""
    linux_driver.XTermParser = PasteSafeParser  # type: ignore[attr-defined]
