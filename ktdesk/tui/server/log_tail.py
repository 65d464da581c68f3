"""A log as it grows."""

from __future__ import annotations

from pathlib import Path

LOG_BYTES = 32 << 10
"""Of the end of the log, when the place is entered."""


class LogTail:
    """What is written to a file from now on, and the end of what was there."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._position: int | None = None

    def more(self) -> str:
        """New text; empty where there is none, or no file."""
        try:
            with self._path.open("rb") as file:
                size = file.seek(0, 2)
                if self._position is None or self._position > size:  # a new file begins
                    self._position = max(0, size - LOG_BYTES)
                file.seek(self._position)
                data = file.read()
                self._position += len(data)
        except OSError:
            return ""
        return data.decode("utf-8", errors="replace")
