"""What an answer is made of: pieces of reasoning, of content and of tool calls, in the order in which they come."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from dataclasses import dataclass, replace
from typing import TypeVar

Result = TypeVar("Result")


@dataclass(frozen=True)
class Content:
    """Text for the user."""

    text: str


@dataclass(frozen=True)
class Reasoning:
    """What the model thinks before it answers."""

    text: str


@dataclass(frozen=True)
class CallStart:
    """A tool call begins. Its arguments follow."""

    index: int
    """0 for the first call of an answer."""
    name: str
    call_id: str | None = None
    """Where the model gives one."""


@dataclass(frozen=True)
class CallArguments:
    """The next piece of the JSON that a call's arguments are."""

    index: int
    text: str


Part = Content | Reasoning | CallStart | CallArguments
Steps = Generator[Part | None, None, Result]
"""A parser that reads as if all text were there: it yields what it has found, and None where it needs more text."""


def merged(parts: Iterable[Part]) -> list[Part]:
    """Neighbours of one kind put together."""
    result: list[Part] = []
    for part in parts:
        last = result[-1] if result else None
        if isinstance(part, CallStart) or last is None or not _continues(last, part):
            result.append(part)
        else:
            assert not isinstance(last, CallStart)
            result[-1] = replace(last, text=last.text + part.text)
    return result


def _continues(last: Part, part: Part) -> bool:
    same_call = not isinstance(part, CallArguments) or getattr(last, "index", None) == part.index
    return type(last) is type(part) and same_call
