"""What `ktdesk eval` has measured so far, in a file: a run that was stopped goes on where it was.

Lines of JSON: the first says what was asked, each other holds one window of one variant. A last line that was cut off
is left out.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ktdesk.errors import UsageError
from ktdesk_engine.evaluation import WindowResult

Key = tuple[str, int]
"""A variant's name with its file, and the number of a window."""


class EvalJournal:
    """Without a file it remembers nothing."""

    def __init__(self, path: Path | None, asked: Mapping[str, Any]) -> None:
        """asked: what must be the same for results to hold. UsageError where the file is of another run."""
        self._path = path
        self._known: dict[Key, WindowResult] = {}
        if path is None:
            return
        first = json.dumps(asked, sort_keys=True)
        try:
            lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
            if not lines:
                path.write_text(first + "\n", encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"--resume {path}: {getattr(error, 'strerror', None) or 'is no text'}") from None
        if lines and lines[0] != first:
            raise UsageError(
                f"--resume {path}: was written by a run with another model, text or window, or is no such file; name "
                "a new one"
            )
        self._read(lines[1:])

    def get(self, key: Key) -> WindowResult | None:
        return self._known.get(key)

    def add(self, key: Key, result: WindowResult) -> None:
        if self._path is None:
            return
        line = json.dumps({"key": list(key), **vars(result), "kl": result.kl.tolist()})
        with self._path.open("a", encoding="utf-8") as file:
            file.write(line + "\n")

    def _read(self, lines: list[str]) -> None:
        for number, line in enumerate(lines, start=2):
            entry = _entry(line)
            if entry is not None:
                self._known[entry[0]] = entry[1]
            elif number == len(lines) + 1:
                self._cut_off_last_line()
            else:
                raise UsageError(f"--resume {self._path}: line {number} is damaged; name a new file")

    def _cut_off_last_line(self) -> None:
        assert self._path is not None
        whole = self._path.read_bytes()
        self._path.write_bytes(whole[: whole.rstrip(b"\n").rfind(b"\n") + 1])


def _entry(line: str) -> tuple[Key, WindowResult] | None:
    """None where it is damaged."""
    try:
        facts = json.loads(line)
        name, window = facts.pop("key")
        return (name, window), WindowResult(**{**facts, "kl": np.array(facts["kl"], np.float64)})
    except (ValueError, TypeError, KeyError):
        return None
