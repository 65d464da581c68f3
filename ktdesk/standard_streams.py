"""Standard input, output and error, made fit for use whatever the caller gave: closed, full, or of another encoding."""

from __future__ import annotations

import os
import sys
from typing import TextIO


def prepare_streams() -> None:
    """What is closed reads as empty and swallows; input is UTF-8; output spells out what its encoding has not."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:  # in this order each gets the number that it should have
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115
    sys.stdin.reconfigure(encoding="utf-8", errors="strict")  # type: ignore[union-attr]
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]


def forget_unwritable(stream: TextIO) -> None:
    """What a full disk or a closed pipe did not take must not make the interpreter's last flush complain."""
    try:
        stream.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
