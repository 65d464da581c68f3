"""Servers that `run` and `chat` start for themselves, and that leave when nobody asks them any more."""

from __future__ import annotations

import fcntl
import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path

from ktdesk.errors import ServerStartError
from ktdesk.exit_codes import ExitCode
from ktdesk.options import EngineOptions
from ktdesk.server_records import ServerRecord, records_folder, running_servers
from ktdesk.settings import KEY_VARIABLE, Settings

PROGRAM = "import sys; sys.path[:] = filter(None, sys.path); from ktdesk.__main__ import main; main()"
"""Without the current folder, where anything may be called ktdesk."""
ERROR_MARK = "ktdesk: error: "
SECONDS_BETWEEN_LOOKS = 0.05


class StartedServer:
    """A process of its own: it goes on when this one ends."""

    def __init__(
        self,
        path: Path,
        settings: Settings,
        options: EngineOptions,
        keep_alive_seconds: float,
        more: Sequence[str] = (),
    ) -> None:
        """more: of the command line."""
        home = [] if settings.home is None else ["--home", str(settings.data_folder)]
        command = [sys.executable, "-c", PROGRAM, *home, "serve", *_arguments(options), *more]
        command += ["--for-client", "--port", "0", "--keep-alive", str(keep_alive_seconds), "--", str(path.absolute())]
        self._settings = settings
        self._said = records_folder(settings) / f"start-{os.getpid()}.err"
        with self._said.open("w") as said:
            self._pid = _spawn(command, said.fileno())
        self._code: int | None = None

    def record(self) -> ServerRecord:
        """Once it listens. ServerStartError where it does not get there."""
        while True:
            for record in running_servers(self._settings):
                if record.pid == self._pid:
                    return record
            if self._exit_code() is not None:
                raise self.failure()
            time.sleep(SECONDS_BETWEEN_LOOKS)

    def failure(self) -> ServerStartError:
        """What it said before it ended."""
        while (code := self._exit_code()) is None:
            time.sleep(SECONDS_BETWEEN_LOOKS)
        lines = self._said.read_text(encoding="utf-8", errors="replace").splitlines()
        errors = [line.removeprefix(ERROR_MARK) for line in lines if line.startswith(ERROR_MARK)]
        known = code if code in list(ExitCode) and code != 0 else ExitCode.UNEXPECTED
        return ServerStartError(errors[-1] if errors else f"the server ended with code {code}", int(known))

    def forget(self) -> None:
        """It is ready, or gone: what it says from now on is in its log."""
        self._said.unlink(missing_ok=True)

    def stop(self) -> None:
        if self._exit_code() is None:
            os.kill(self._pid, signal.SIGTERM)

    def _exit_code(self) -> int | None:
        if self._code is None:
            pid, status = os.waitpid(self._pid, os.WNOHANG)
            self._code = None if pid == 0 else os.waitstatus_to_exitcode(status)
        return self._code


@contextmanager
def only_starter(settings: Settings) -> Iterator[None]:
    """One process of this user at a time looks for a server and starts it: two would load the model twice."""
    with (records_folder(settings) / "start.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _spawn(command: list[str], errors_to: int) -> int:
    """In a session of its own, so that closing this terminal does not end it."""
    environment = {name: value for name, value in os.environ.items() if name != KEY_VARIABLE}
    null = os.open(os.devnull, os.O_RDWR)
    try:
        actions = [(os.POSIX_SPAWN_DUP2, source, target) for source, target in ((null, 0), (null, 1), (errors_to, 2))]
        return os.posix_spawn(command[0], command, environment, file_actions=actions, setsid=True)
    finally:
        os.close(null)


def _arguments(options: EngineOptions) -> Iterator[str]:
    for field in fields(options):
        value, name = getattr(options, field.name), field.name.replace("_", "-")
        if value == field.default:
            continue
        if isinstance(value, bool):
            yield f"--{name}" if value else f"--no-{name}"
        else:
            yield from (f"--{name}", str(value))
