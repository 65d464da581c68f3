"""Text that cannot steer a terminal: what would is drawn instead of obeyed."""

from __future__ import annotations

from ktdesk.terminal import without_control

TAB = "    "
_DIRECTION = dict.fromkeys([0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A), 0x061C], "\ufffd")
"""Marks that turn the direction of what follows: they could make one text look like another."""
_OTHER = {0x2028: "\n", 0x2029: "\n", 0xFEFF: "", 0x9: TAB} | dict.fromkeys(range(0xD800, 0xE000), "\ufffd")
"""Line separators, a byte order mark, halves of surrogate pairs, which no terminal takes."""
_TABLE = _DIRECTION | _OTHER | dict.fromkeys(range(0xE0000, 0xE0080), "\ufffd")
"""And tags, which nobody sees."""


def harmless(text: str) -> str:
    """Letter by letter, so that pieces of a text can be made harmless one by one."""
    return text if text.isascii() and text.isprintable() else without_control(text.translate(_TABLE))
