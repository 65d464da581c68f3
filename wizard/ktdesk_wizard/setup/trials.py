"""The process that tries a model, from the side of the setup: starts it, and reads what it tells, part by part."""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping
from typing import Any

from ktdesk_wizard.errors import TrialError, TrialMemoryError
from ktdesk_wizard.setup.messages import Message, Part, Task

SECONDS_TO_END = 5
LAST_WORDS = 400
"""Characters of its standard error that are quoted."""

Facts = Mapping[str, Any]


class Trial:
    """One process, which does its parts one after the other."""

    def __init__(self, task: Task) -> None:
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 (closed by `close`)
        command = [sys.executable, "-m", "ktdesk_wizard.setup.trial", task.as_argument()]
        self._process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=self._errors, text=True
        )

    def wait_for(self, part: Part, advance: Callable[[Facts], None] = lambda facts: None) -> Facts:
        """What came of the part. TrialError where it failed, or where the process ended before."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            message = Message.from_line(line)
            if message is None:
                continue
            if message.kind == "failed":
                kind = TrialMemoryError if message.facts.get("is_memory") else TrialError
                raise kind(str(message.facts.get("error")))
            if message.kind == "done" and message.part == part:
                return message.facts
            if message.kind == "advance":
                advance(message.facts)
        raise self._death(self._process.wait())

    def kill(self) -> None:
        self._process.kill()

    def close(self) -> None:
        """It has ended when this returns."""
        self._process.terminate()
        try:
            self._process.wait(SECONDS_TO_END)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._errors.close()

    def _death(self, code: int) -> TrialError:
        if code == -signal.SIGKILL:
            return TrialMemoryError("the process that tried the model was killed, most often for want of memory")
        self._errors.seek(0)
        words = " ".join(self._errors.read()[-LAST_WORDS:].split())
        how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        return TrialError(f"the process that tried the model ended with {how}{f': {words}' if words else ''}")


class Trials:
    """One process at a time; `stop` ends it from any thread, and lets no other begin."""

    def __init__(self) -> None:
        self._trial: Trial | None = None
        self._is_stopped = False
        self._lock = threading.Lock()

    def begin(self, task: Task) -> Trial:
        self.end()
        with self._lock:
            if self._is_stopped:
                raise TrialError("stopped")
            self._trial = Trial(task)
            return self._trial

    def end(self) -> None:
        """Of the process that was begun last, if there is one."""
        with self._lock:
            trial, self._trial = self._trial, None
        if trial is not None:
            trial.close()

    def stop(self) -> None:
        with self._lock:
            self._is_stopped = True
            if self._trial is not None:
                self._trial.kill()
