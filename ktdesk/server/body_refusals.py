"""What is wrong with a body, in one sentence, from all that pydantic says of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fastapi.exceptions import RequestValidationError

from ktdesk.refusal_words import in_own_words
from ktdesk.server.errors import Refusal

KIND = "invalid_request_error"
UNREADABLE = (
    "the body cannot be read: it must be JSON in UTF-8, nested less than a thousand deep, with numbers of less than "
    "4,300 digits"
)


def refusal_of_body(error: RequestValidationError) -> Refusal:
    """The first parameter that is wrong."""
    first = error.errors()[0]
    if first["type"] == "json_invalid":  # its place is the character's number
        reason = f"{first['ctx']['error']}, at character {first['loc'][-1]}"
        return Refusal(400, KIND, f"the body is no JSON: {reason}", code="json_invalid")
    found = _of_one_parameter(error)
    place = _dotted(found[0], error.body)
    if found[0]["type"] == "extra_forbidden":
        message = f"{place} is not supported: leave it out"
    elif place:
        message = f"{place}: {_told(found)}"
    else:
        message = "the body must be a JSON object"
    return Refusal(400, KIND, message[:500], place[:200] or None, str(found[0]["type"]))


def _of_one_parameter(error: RequestValidationError) -> Sequence[Any]:
    """Of a value that may be of several kinds, each kind says what is wrong. The deepest knows best; and where the
    value is of one of the kinds, what that one says."""
    errors = error.errors()
    same = [one for one in errors if one["loc"][:2] == errors[0]["loc"][:2]]
    deepest = max(len(_place(one, error.body)) for one in same)
    found = [one for one in same if len(_place(one, error.body)) == deepest]
    return [one for one in found if not one["type"].endswith("_type")] or found


def _told(found: Sequence[Any]) -> str:
    messages = dict.fromkeys(str(one["msg"]) for one in found)
    first, *others = messages
    return in_own_words(" or".join([first, *(message.removeprefix("Input should be") for message in others)]))


def _dotted(error: Any, body: object) -> str:
    return ".".join(map(str, _place(error, body)))


def _place(error: Any, body: object) -> list[str | int]:
    """Keys and indices of the body, without the names of the kinds of values that were tried."""
    where, *steps = error["loc"]
    if where != "body":
        return steps
    place: list[str | int] = []
    value: Any = body
    for number, step in enumerate(steps):
        is_last_and_missing = error["type"] == "missing" and number == len(steps) - 1
        if _has(value, step):
            value = value[step]
        elif not is_last_and_missing:
            continue
        place.append(step)
    return place


def _has(value: object, step: str | int) -> bool:
    if isinstance(value, list):
        return isinstance(step, int) and step < len(value)
    return isinstance(value, dict) and step in value
