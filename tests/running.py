"""What the fixtures that run the command line give."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from typing import NamedTuple


class Result(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def error(self) -> str:
        """The one line about what went wrong; there is no other and no traceback."""
        lines = [line for line in self.err.splitlines() if line.startswith("ktdesk: error: ")]
        assert len(lines) == 1, self.err
        assert "Traceback" not in self.err
        return lines[0]


RunKtdesk = Callable[..., Result]
StartKtdesk = Callable[..., subprocess.Popen[str]]
