"""What pydantic says of values, of options and of bodies, in our own words."""

from __future__ import annotations

import re
from collections.abc import Sequence

WORDS: Sequence[tuple[str, str]] = (
    (r"Input should be a valid integer(?:, (?:unable to parse|got a number with)[\w ]*)?", "must be a whole number"),
    (r"Input should be a valid number(?:, unable to parse[\w ]*)?", "must be a number"),
    (r"Input should be greater than or equal to ", "must be at least "),
    (r"Input should be less than or equal to ", "must be at most "),
    (r"Input should be greater than ", "must be above "),
    (r"Input should be less than ", "must be below "),
    (r"\w+ should have at least 1 (?:item|character)(?: after validation, not 0)?", "must not be empty"),
    (r"\w+ should have at (least|most) (\d+) (\w+)(?: after validation, not (\d+))?", r"must have at \1 \2 \3"),
)
"""The first that fits counts, each on what those before it left."""


def in_own_words(message: str) -> str:
    """Kinds that are not here stay as they are."""
    for pattern, words in WORDS:
        message = re.sub(pattern, words, message)
    return message
