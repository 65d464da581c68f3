"""A hub of models on this machine: lists, redirects and serves ranges as huggingface.co and ModelScope do.

Bytes come from a second server, another host to a client: there no token may arrive. Faults are given in the order
that requests for bytes come in (`hub.faults`), or decided for each (`hub.fault_for`); every request is noted.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit

COMMIT = "0123456789abcdef0123456789abcdef01234567"
PAGE = 2
"""Files on a page of the tree: small, so that lists have several."""


class Asked(NamedTuple):
    server: str
    """hub or cdn"""
    method: str
    path: str
    start: int | None
    token: str | None


@dataclass(frozen=True)
class Fault:
    """What goes wrong with one request for bytes."""

    status: int | None = None
    headers: tuple[tuple[str, str], ...] = ()
    cut_after: int | None = None
    """Bytes, then the connection is closed."""
    stall_after: int | None = None
    """Bytes, then nothing more comes for `stall_seconds`."""
    stall_seconds: float = 5.0
    flip_at: int | None = None
    """The byte of the answer that is wrong."""
    lie: bool = False
    """Another range than was asked for, and it says so."""
    ignore_range: bool = False
    claim: int | None = None
    """The size that Content-Range tells."""
    encoding: str | None = None


@dataclass
class LoopbackHub:
    repositories: dict[str, dict[str, bytes]] = field(default_factory=dict)
    gated: set[str] = field(default_factory=set)
    token: str | None = None
    """That opens what is gated."""
    faults: list[Fault | None] = field(default_factory=list)
    """For the next requests for bytes, one each. None: nothing goes wrong."""
    fault_for: Callable[[Asked], Fault | None] = lambda asked: None
    hub_faults: list[Fault | None] = field(default_factory=list)
    """For the next requests to the hub itself; only status and headers count."""
    bytes_s: float | None = None
    """How fast bytes are sent, to each connection."""
    asked: list[Asked] = field(default_factory=list)
    urls: dict[str, str] = field(default_factory=dict)
    generation: int = 0
    """Of signed addresses: those of an older one have run out."""
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def url(self) -> str:
        return self.urls["hub"]

    def add(self, repository: str, path: str, data: bytes) -> str:
        """Its SHA-256."""
        self.repositories.setdefault(repository, {})[path] = data
        return hashlib.sha256(data).hexdigest()

    def bytes_asked(self) -> list[Asked]:
        """Requests for bytes alone."""
        return [asked for asked in self.asked if asked.method == "GET" and asked.start is not None]

    def take_fault(self, asked: Asked) -> Fault | None:
        with self.lock:
            return (self.faults.pop(0) if self.faults else None) or self.fault_for(asked)

    def take_hub_fault(self) -> Fault | None:
        with self.lock:
            return self.hub_faults.pop(0) if self.hub_faults else None


@contextmanager
def running_hub() -> Iterator[LoopbackHub]:
    hub = LoopbackHub()
    servers = {name: _Server((host, 0), _handler(hub, name)) for name, host in HOSTS.items()}
    threads = []
    for name, server in servers.items():
        server.daemon_threads = True
        hub.urls[name] = f"http://{HOSTS[name]}:{server.server_address[1]}"
        threads.append(threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True))
        threads[-1].start()
    try:
        yield hub
    finally:
        for server in servers.values():
            server.shutdown()
            server.server_close()


class _Server(ThreadingHTTPServer):
    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients hang up whenever they like."""


HOSTS = {"hub": "127.0.0.1", "cdn": "127.0.0.2"}


def _handler(hub: LoopbackHub, server: str) -> type[BaseHTTPRequestHandler]:
    class Handler(_Handler):
        state, server_name = hub, server

    return Handler


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    state: LoopbackHub
    server_name: str

    def log_message(self, format: str, *args: Any) -> None: ...

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        path = unquote(parts.path)
        span = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        token = self.headers.get("Authorization", "").removeprefix("Bearer ") or None
        asked = Asked(self.server_name, self.command, path, int(span[1]) if span else None, token)
        with self.state.lock:
            self.state.asked.append(asked)
        try:
            if self.server_name == "cdn":
                self._serve_bytes(asked, span, path, parts.query)
            else:
                self._serve_hub(asked, span, path, parse_qs(parts.query))
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    def _serve_hub(self, asked: Asked, span: re.Match[str] | None, path: str, query: dict[str, list[str]]) -> None:
        fault = self.state.take_hub_fault()
        if fault is not None and fault.status is not None:
            self._answer(fault.status, b"no", dict(fault.headers))
        elif found := re.fullmatch(r"/api/models/([^/]+/[^/]+)(?:/revision/([^/]+))?", path):
            self._serve_info(found[1], found[2])
        elif found := re.fullmatch(r"/api/models/([^/]+/[^/]+)/tree/[^/]+/?", path):
            self._serve_tree(found[1], int(query.get("cursor", ["0"])[0]))
        elif found := re.fullmatch(r"/api/v1/models/(.+)/repo/files", path):
            self._serve_modelscope_list(found[1])
        elif found := re.fullmatch(r"/models/([^/]+/[^/]+)/resolve/master/(.+)", path):
            self._serve_file(asked, span, self.state.repositories.get(found[1], {}).get(found[2]))
        elif found := re.fullmatch(r"/([^/]+/[^/]+)/resolve/[^/]+/(.+)", path):
            self._serve_resolve(found[1], found[2])
        elif found := re.fullmatch(r"/plain/([^/]+/[^/]+)/(.+)", path):
            self._serve_file(asked, span, self.state.repositories.get(found[1], {}).get(found[2]))
        else:
            self._answer(404, b"nothing here")

    def _serve_info(self, repository: str, revision: str | None) -> None:
        if repository not in self.state.repositories:
            self._answer(401, b"{}", {"X-Error-Message": "Invalid username or password."})
        elif revision not in (None, "main", COMMIT):
            self._answer(404, b"{}", {"X-Error-Code": "RevisionNotFound", "X-Error-Message": "Invalid rev id"})
        else:
            self._answer_json({"id": repository, "sha": COMMIT, "private": False, "gated": False, "siblings": []})

    def _serve_tree(self, repository: str, cursor: int) -> None:
        files = sorted(self.state.repositories[repository].items())
        headers = {}
        if cursor + PAGE < len(files):
            next_url = f"{self.state.url}/api/models/{repository}/tree/{COMMIT}?recursive=true&cursor={cursor + PAGE}"
            headers["Link"] = f'<{next_url}>; rel="next"'
        self._answer_json([_entry(path, data) for path, data in files[cursor : cursor + PAGE]], headers)

    def _serve_modelscope_list(self, repository: str) -> None:
        files = self.state.repositories.get(repository)
        if files is None:
            self._answer(404, b"{}")
            return
        listed = [
            {"Path": path, "Type": "blob", "Size": len(data), "Sha256": hashlib.sha256(data).hexdigest()}
            for path, data in files.items()
        ]
        self._answer_json({"Code": 200, "Data": {"Files": listed}})

    def _serve_resolve(self, repository: str, path: str) -> None:
        data = self.state.repositories.get(repository, {}).get(path)
        token = self.headers.get("Authorization", "").removeprefix("Bearer ") or None
        if data is None:
            self._answer(404, b"", {"X-Error-Code": "EntryNotFound"})
        elif repository in self.state.gated and (token is None or token != self.state.token):
            self._answer(401 if token is None else 403, b"", {"X-Error-Code": "GatedRepo"})
        else:
            headers = {
                "Location": f"{self.state.urls['cdn']}/{repository}/{path}?signed={self.state.generation}",
                "X-Linked-Size": str(len(data)),
                "X-Linked-ETag": f'"{hashlib.sha256(data).hexdigest()}"',
                "X-Repo-Commit": COMMIT,
            }
            self._answer(302, b"", headers)

    def _serve_bytes(self, asked: Asked, span: re.Match[str] | None, path: str, query: str) -> None:
        if query != f"signed={self.state.generation}":
            self._answer(403, b"<Error>Request has expired</Error>")
            return
        owner, name, file = path.lstrip("/").split("/", 2)
        self._serve_file(asked, span, self.state.repositories[f"{owner}/{name}"][file])

    def _serve_file(self, asked: Asked, span: re.Match[str] | None, data: bytes | None) -> None:
        if data is None:
            self._answer(404, b"")
            return
        fault = (self.state.take_fault(asked) if self.command == "GET" else None) or Fault()
        etag = {"ETag": f'"{hashlib.sha256(data).hexdigest()[:16]}"'}
        if fault.status is not None:
            self._answer(fault.status, b"no", dict(fault.headers))
        elif span is None or fault.ignore_range:
            self._send(200, data, {**etag, **dict(fault.headers)}, fault)
        else:
            start, end = int(span[1]), min(int(span[2]) + 1, len(data))
            if start >= len(data):
                self._answer(416, b"", {"Content-Range": f"bytes */{len(data)}"})
                return
            if fault.lie:
                start, end = max(start - 7, 0), end - 7
            claim = len(data) if fault.claim is None else fault.claim
            self._send(206, data[start:end], {**etag, "Content-Range": f"bytes {start}-{end - 1}/{claim}"}, fault)

    def _send(self, status: int, body: bytes, headers: dict[str, str], fault: Fault) -> None:
        if fault.encoding is not None:
            headers["Content-Encoding"] = fault.encoding
        if fault.flip_at is not None and fault.flip_at < len(body):
            body = body[: fault.flip_at] + bytes([body[fault.flip_at] ^ 0xFF]) + body[fault.flip_at + 1 :]
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "HEAD":
            return
        stop = min(len(body), *(at for at in (fault.cut_after, fault.stall_after, len(body)) if at is not None))
        self._write(body[:stop])
        if fault.stall_after is not None and stop < len(body):
            time.sleep(fault.stall_seconds)
        if stop < len(body):
            self.close_connection = True

    def _write(self, body: bytes) -> None:
        speed = self.state.bytes_s
        if speed is None:
            self.wfile.write(body)
            return
        step = max(int(speed / 50), 1)
        for start in range(0, len(body), step):
            self.wfile.write(body[start : start + step])
            time.sleep(1 / 50)

    def _answer_json(self, facts: Any, headers: dict[str, str] | None = None) -> None:
        self._answer(200, json.dumps(facts).encode(), {"Content-Type": "application/json", **(headers or {})})

    def _answer(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


def _entry(path: str, data: bytes) -> dict[str, Any]:
    """Of the tree. Small text files are no LFS files."""
    if not path.endswith(".gguf"):
        return {"type": "file", "oid": "f" * 40, "size": len(data), "path": path}
    lfs = {"oid": hashlib.sha256(data).hexdigest(), "size": len(data), "pointerSize": 134}
    return {"type": "file", "oid": "f" * 40, "size": len(data), "path": path, "lfs": lfs}
