"""Text that comes from outside, by the command line or standard input. It is UTF-8, or it is refused."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

import typer

from ktdesk.errors import UsageError


def argument_text(argument: str) -> str:
    """An argument of the command line. Bytes that the locale cannot read, which Python keeps, are UTF-8."""
    try:
        argument.encode()
        return argument
    except UnicodeEncodeError:
        pass
    try:
        return os.fsencode(argument).decode()
    except UnicodeDecodeError as error:
        raise typer.BadParameter(_problem(error)) from None


def piped_text() -> str:
    """All of standard input."""
    return _decoded(sys.stdin.buffer.read(), "standard input")


def piped_lines() -> Iterator[str]:
    """Each as soon as it is there."""
    for number, line in enumerate(sys.stdin.buffer, start=1):
        yield _decoded(line, f"line {number} of standard input")


def _decoded(data: bytes, what: str) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise UsageError(f"{what} is {_problem(error)}") from None


def _problem(error: UnicodeDecodeError) -> str:
    return f"not UTF-8: byte {error.object[error.start]:#04x} at {error.start:,}; convert it with iconv"
