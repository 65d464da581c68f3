"""A server that says what a test tells it to, as ktdesk's does: for what no small model would say."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from ktdesk.model_link import LinkState

Delta = dict[str, Any]


def content(text: str, size: int = 4) -> list[Delta]:
    """As it comes, a token at a time."""
    return [{"content": text[i : i + size]} for i in range(0, len(text), size)]


def reasoning(text: str) -> list[Delta]:
    return [{"reasoning_content": piece} for piece in text.split(" ")]


@dataclass
class Script:
    """One answer."""

    deltas: Sequence[Delta] = ()
    finish_reason: str = "stop"
    seconds_between: float = 0.0
    dies_after: int | None = None
    """Deltas; then the connection breaks."""
    holds_after: int | None = None
    """Deltas; then nothing comes until `go_on` is set or the client leaves."""
    refusal: tuple[int, str] | None = None
    """Status and message."""
    usage: tuple[int, int, int] = (120, 40, 100)
    """Tokens of the prompt, of the answer, and cached ones."""


@dataclass
class FakeChatServer:
    url: str = ""
    scripts: list[Script] = field(default_factory=list)
    """Of the answers to come; the last is repeated."""
    asked: list[dict[str, Any]] = field(default_factory=list)
    """Bodies of requests."""
    go_on: threading.Event = field(default_factory=threading.Event)
    num_cancelled: int = 0

    @property
    def link_state(self) -> LinkState:
        return LinkState("ready", "fake-moe", self.url, "/models/fake-moe.gguf", 100.0, context=4096)

    def next_script(self) -> Script:
        return self.scripts.pop(0) if len(self.scripts) > 1 else self.scripts[0]


@contextmanager
def fake_chat_server(*scripts: Script) -> Iterator[FakeChatServer]:
    fake = FakeChatServer(scripts=list(scripts))

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            """As the health of a server that is ready, and as its model's facts."""
            body = json.dumps({"status": "ready", "percent": 100.0, "context": 4096}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_POST(self) -> None:
            fake.asked.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            script = fake.next_script()
            if script.refusal is not None:
                self._refuse(*script.refusal)
                return
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.end_headers()
            try:
                self._answer(script)
            except OSError:
                fake.num_cancelled += 1

        def _answer(self, script: Script) -> None:
            for number, delta in enumerate(script.deltas):
                if number == script.dies_after:
                    return
                if number == script.holds_after:
                    self._hold()
                self._event({"choices": [{"index": 0, "delta": delta, "finish_reason": None}], "usage": None})
                time.sleep(script.seconds_between)
            if script.dies_after is not None:
                return
            self._event({"choices": [{"index": 0, "delta": {}, "finish_reason": script.finish_reason}]})
            prompt, answer, cached = script.usage
            usage = {"prompt_tokens": prompt, "completion_tokens": answer}
            usage["prompt_tokens_details"] = {"cached_tokens": cached}  # type: ignore[assignment]
            timings = {"prefill_seconds": 0.5, "decode_seconds": 2.0}
            self._event({"choices": [], "usage": usage, "timings": timings})
            self.wfile.write(b"data: [DONE]\n\n")

        def _hold(self) -> None:
            """Empty comments tell whether anybody still reads."""
            while not fake.go_on.wait(0.02):
                self.wfile.write(b": still here\n\n")
                self.wfile.flush()

        def _event(self, facts: dict[str, Any]) -> None:
            self.wfile.write(f"data: {json.dumps(facts)}\n\n".encode())
            self.wfile.flush()

        def _refuse(self, status: int, message: str) -> None:
            body = json.dumps({"error": {"message": message, "code": "refused"}}).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *arguments: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    fake.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield fake
    finally:
        fake.go_on.set()
        server.shutdown()
        server.server_close()
        thread.join()
