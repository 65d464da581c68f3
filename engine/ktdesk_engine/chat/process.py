"""The engine's side of the process that renders templates: starts it, talks to it, kills it at a limit.

`worker.py` is the other side and says what a request and a reply hold. The process is started at the
first request, lives until `close` (or until its owner is forgotten), and is replaced after it was killed.
"""

from __future__ import annotations

import errno
import importlib.util
import json
import math
import os
import selectors
import signal
import subprocess
import sys
import threading
import time
import weakref
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

from ktdesk_engine.errors import ConfigError, ResourceError, TemplateError

START = "import sys; sys.path += sys.argv[2:]; import worker; worker.main(sys.argv[1])"
START_SECONDS = 60.0
"""A start takes 0.1 s; a machine that is swapping may take long, and is not the template's fault."""
CHUNK_BYTES = 1 << 16
USED_UP = {
    errno.EMFILE: "raise ulimit -n",
    errno.ENFILE: "close something",
    errno.EAGAIN: "raise ulimit -u, or close something",
    errno.ENOMEM: "close something",
}
"""What the system may have no more of -> what to do."""
MAX_JSON_BYTES_PER_CHAR = 12
"""JSON escapes a character outside the basic plane as two groups of six."""


@dataclass(frozen=True)
class TemplateLimits:
    """What one rendering may cost."""

    seconds: float = 5.0
    """Wall time; templates of real models take milliseconds."""
    memory_bytes: int = 512 << 20
    """Address space of the process, its own 50 MB included."""
    max_chars: int = 8 << 20
    """Length of the text: about two million tokens, more than any context."""

    def __post_init__(self) -> None:
        if not (0 < self.seconds < math.inf and self.memory_bytes > 0 and self.max_chars > 0):
            raise ConfigError(f"the limits of chat templates must be finite numbers above 0: {self}")


class TemplateProcess:
    """Renders templates elsewhere. One request at a time; safe to call from several threads."""

    def __init__(self, source: str, limits: TemplateLimits) -> None:
        """source: where the template is from, for messages."""
        self._source = source
        self._limits = limits
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._stop: weakref.finalize[..., Any] | None = None

    def ask(self, request: str, spent_seconds: float = 0.0) -> dict[str, Any]:
        """The worker's reply to one line of JSON. TemplateError when it had to be stopped, or died.

        spent_seconds: of its time, what earlier requests took that count as one with this.
        """
        with self._lock:
            process = self._running()
            deadline = time.monotonic() + self._limits.seconds - spent_seconds
            try:
                return self._exchange(process, request.encode() + b"\n", deadline)
            except BaseException:  # also Ctrl-C: the reply of this request must not meet the next one
                self._kill()
                raise

    def close(self) -> None:
        """Ends the process. A later request starts a new one."""
        with self._lock:
            self._kill()

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is not None and self._process.poll() is None:
            return self._process
        self._kill()
        try:
            process = _start(self._limits)
        except OSError as error:
            if error.errno in USED_UP:
                advice = f"{error.strerror}: {USED_UP[error.errno]}"
                raise ResourceError(f"{self._source}: no process to render the chat template in: {advice}") from error
            raise self._error(f"was not rendered: no process for it ({error})") from error
        self._process = process
        self._stop = weakref.finalize(self, _end, process)
        try:
            self._exchange(process, b"", time.monotonic() + START_SECONDS)
        except BaseException:
            self._kill()
            raise
        return process

    def _kill(self) -> None:
        if self._stop is not None:
            self._stop()
        self._process = self._stop = None

    def _exchange(self, process: subprocess.Popen[bytes], line: bytes, deadline: float) -> dict[str, Any]:
        """Sends a line and waits for one, no longer than allowed."""
        max_bytes = self._limits.max_chars * MAX_JSON_BYTES_PER_CHAR + CHUNK_BYTES
        rest, reply = memoryview(line), bytearray()
        assert process.stdin is not None
        assert process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            if rest:
                selector.register(process.stdin, selectors.EVENT_WRITE)
            while not reply.endswith(b"\n"):
                left = deadline - time.monotonic()
                if left <= 0:  # also when it keeps sending
                    raise self._error(
                        f"ran longer than {self._limits.seconds:g} s and was stopped" if line else "did not start"
                    )
                for key, _ in selector.select(left):
                    if key.fileobj is process.stdin:
                        rest = rest[self._send(process, rest) :]
                        if not rest:
                            selector.unregister(process.stdin)
                    else:
                        reply += self._receive(process)
                if len(reply) > max_bytes:
                    raise self._error("sent more than it may and was stopped")
        return self._parse(reply)

    def _parse(self, reply: bytearray) -> dict[str, Any]:
        """A reply is not trusted either: the template may have taken over the process."""
        try:
            answer = json.loads(reply)
        except (ValueError, RecursionError) as error:
            raise self._error("sent what is no reply and was stopped") from error
        if not isinstance(answer, dict) or not isinstance(answer.get("text", ""), str):
            raise self._error("sent what is no reply and was stopped")
        return answer

    def _send(self, process: subprocess.Popen[bytes], rest: memoryview) -> int:
        try:
            return os.write(_fd(process.stdin), rest[:CHUNK_BYTES])
        except BrokenPipeError as error:
            raise self._death(process) from error

    def _receive(self, process: subprocess.Popen[bytes]) -> bytes:
        chunk = os.read(_fd(process.stdout), CHUNK_BYTES)
        if not chunk:
            raise self._death(process)
        return chunk

    def _death(self, process: subprocess.Popen[bytes]) -> TemplateError:
        process.kill()  # it closed its end, and is gone or about to go
        status = process.wait()
        if status == -signal.SIGXCPU:
            return self._error(f"used more than {self._limits.seconds:g} s of processor time and was stopped")
        cause = f"signal {-status}" if status < 0 else f"exit status {status}"
        return self._error(f"was not rendered: its process ended with {cause}, perhaps for lack of memory")

    def _error(self, what: str) -> TemplateError:
        return TemplateError(f"{self._source}: the chat template {what}; give the prompt raw, or use another file")


def _fd(pipe: IO[bytes] | None) -> int:
    assert pipe is not None
    return pipe.fileno()


def _start(limits: TemplateLimits) -> subprocess.Popen[bytes]:
    """A bare interpreter: isolated (-I), without site packages but those named (-S), without environment."""
    command = [sys.executable, "-I", "-S", "-c", START, json.dumps(asdict(limits)), *_module_folders()]
    process = subprocess.Popen(
        command,
        bufsize=0,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd="/",
        env=_environment(),
        start_new_session=True,  # Ctrl-C in the terminal is not for it
    )
    os.set_blocking(_fd(process.stdin), False)
    return process


def _environment() -> dict[str, str]:
    """Empty, but for what some interpreters need to find their own library."""
    return {name: os.environ[name] for name in ("LD_LIBRARY_PATH",) if name in os.environ}


def _module_folders() -> list[str]:
    """Where the worker and the two packages that it imports are."""
    folders = [str(Path(__file__).parent)]
    for package in ("jinja2", "markupsafe"):
        spec = importlib.util.find_spec(package)
        if spec is None or spec.origin is None:
            raise TemplateError(f"chat templates need the Python package {package}: install it")
        folders.append(str(Path(spec.origin).parent.parent))
    return list(dict.fromkeys(folders))


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()
