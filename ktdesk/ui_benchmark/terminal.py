"""The app in a pseudo-terminal: keys in, what it writes out, and what it costs."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import time

import psutil

from ktdesk.settings import HOME_VARIABLE
from ktdesk.starting import PROGRAM

WAIT_SECONDS = 60.0
QUIT = "\x11"
"""ctrl+q"""


class TerminalError(Exception):
    """The app did not show what it should."""


class AppInTerminal:
    """`ktdesk` in a terminal of some size. home: its data folder; nothing of the user's is touched."""

    def __init__(self, home: str, columns: int, rows: int) -> None:
        self._terminal, inner = pty.openpty()
        fcntl.ioctl(inner, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        environment = {**os.environ, "TERM": "xterm-256color", "COLORTERM": "truecolor", HOME_VARIABLE: home}
        self.begun = time.perf_counter()
        self._process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM],
            stdin=inner,
            stdout=inner,
            stderr=inner,
            env=environment,
            start_new_session=True,
        )
        os.close(inner)
        self._watched = psutil.Process(self._process.pid)
        self.written = bytearray()
        """All that it wrote."""

    @property
    def cpu_seconds(self) -> float:
        times = self._watched.cpu_times()
        return times.user + times.system

    @property
    def memory_bytes(self) -> int:
        return int(self._watched.memory_info().rss)

    def press(self, keys: str) -> None:
        os.write(self._terminal, keys.encode())

    def wait_for(self, text: str, since: int = 0) -> float:
        """Seconds on the clock when it was written, anywhere after so many bytes."""
        deadline = time.perf_counter() + WAIT_SECONDS
        wanted = text.encode()
        while wanted not in self.written[since:]:
            if time.perf_counter() > deadline or not self._read(0.05):
                raise TerminalError(f"the app did not write {text!r}: {bytes(self.written[-2000:])!r}")
        return time.perf_counter()

    def read_for(self, seconds: float) -> None:
        end = time.perf_counter() + seconds
        while (left := end - time.perf_counter()) > 0:
            self._read(left)

    def response_seconds(self, keys: str, quiet_seconds: float = 0.08) -> float:
        """From a key to the last that was written because of it; 0 where nothing was."""
        begun = last = time.perf_counter()
        self.press(keys)
        while time.perf_counter() - last < quiet_seconds or (last == begun and time.perf_counter() - begun < 0.5):
            before = len(self.written)
            self._read(0.01)
            if len(self.written) > before:
                last = time.perf_counter()
        return last - begun

    @property
    def pid(self) -> int:
        return self._process.pid

    def wait(self) -> int:
        """Reads until it ends. Its exit code."""
        deadline = time.perf_counter() + WAIT_SECONDS
        while self._read(0.05):
            if time.perf_counter() > deadline:
                raise TerminalError("the app does not end")
        self._read(0.0)
        return self._process.wait()

    def close_by_key(self) -> int:
        self.press(QUIT)
        return self.wait()

    def hang_up(self) -> int:
        """The terminal goes away, and no signal says so. The exit code."""
        os.close(self._terminal)
        self._terminal = os.open(os.devnull, os.O_RDWR)
        return self._process.wait(WAIT_SECONDS)

    def close(self) -> None:
        """Whatever it does."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        os.close(self._terminal)

    def _read(self, seconds: float) -> bool:
        """False where the app is gone."""
        ready, _, _ = select.select([self._terminal], [], [], seconds)
        if ready:
            try:
                self.written += os.read(self._terminal, 65_536)
            except OSError:
                return False
        return self._process.poll() is None
