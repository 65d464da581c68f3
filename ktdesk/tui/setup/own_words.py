"""What the packages advise, in the words of the app: where the command line has an option, the app has a control."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Union

Spoken = Union[str, Callable[[re.Match[str]], str]]  # noqa: UP007  evaluated, by Python 3.10 too
AGAIN = "“Measure again” under Machine"


def _context(found: re.Match[str]) -> str:
    return f"Context at {int(found[1]):,} tokens"


SPOKEN: Sequence[tuple[str, Spoken]] = (
    (r"; --force goes on all the same", ""),
    (r"failed, but --force goes on", "failed, and it goes on all the same"),
    (r"or try it with --force", "or go on all the same"),
    (r" \(--no-memory-guard loads it all the same\)", ""),
    (r"(?<=\d) --cache-type (\w+)", r" and Cache at \1"),
    (r"--context (\d+)", _context),
    (r"--cache-type (\w+)", r"Cache at \1"),
    (r"--compute (\w+)", r"Compute at \1"),
    (r"--device (\w+)", r"Devices at \1"),
    (r"--max-memory ([\d.]+)", r"Memory cap at \1 GiB"),
    (r"--max-memory", "Memory cap"),
    (r"--context", "Context"),
    (r"name a quantization with --quant", "choose one at Quantization"),
    (r"--quant is for", "Quantization is for"),
    (r"`?ktdesk probe --measure`? measures it, and --what-if takes it", f"{AGAIN} measures it"),
    (r"`?ktdesk probe --measure`?", AGAIN),
    (r"another --source", "another source (KTDESK_SOURCES names them)"),
    (r"`ktdesk plan --list` shows the catalogue", "the list has the catalogue"),
    (r"a file of at most", "a smaller Quantization, a file of at most"),
)
"""The first that fits counts, each on what those before it left."""


def own_words(text: str) -> str:
    """Options that the app has no control for stay as they are."""
    for pattern, spoken in SPOKEN:
        text = re.sub(pattern, spoken, text)
    return text
