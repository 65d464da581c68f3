"""The client of `ktdesk bench --server`, in a process of its own: sends requests, and says when their answers came.

`bench_client` starts that process; `python -m ktdesk.bench_client` is it.

A line of JSON comes in, such as {"url": ..., "bodies": [...]}; all its requests are sent at once, and a line goes out
with the seconds at which each event of each answer was there, counted from when its request was sent.
"""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from typing import IO, Any
from urllib.parse import urlsplit

from ktdesk.errors import UsageError

DONE = b"data: [DONE]"


class BenchClient:
    """The process, as who measures sees it."""

    def __init__(self, lines_in: IO[str], lines_out: IO[str]) -> None:
        self._in, self._out = lines_in, lines_out

    def ask(self, url: str, bodies: Sequence[dict[str, Any]]) -> list[list[float]]:
        """All at once. Of each, when its events came, in seconds from when all were sent."""
        self._in.write(json.dumps({"url": url, "bodies": list(bodies)}) + "\n")
        self._in.flush()
        answer = self._out.readline()
        if not answer:
            raise UsageError("the server refused a request of the measurement: see above")
        times: list[list[float]] = json.loads(answer)
        return times


@contextmanager
def bench_client() -> Iterator[BenchClient]:
    command = [sys.executable, "-m", "ktdesk.bench_client"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        yield BenchClient(process.stdin, process.stdout)


def event_times(url: str, body: dict[str, Any], began: float) -> list[float]:
    """Seconds since `began`. A failure of the server is raised."""
    parts = urlsplit(url)
    with closing(http.client.HTTPConnection(parts.netloc)) as connection:
        connection.request("POST", parts.path, json.dumps(body), {"Content-Type": "application/json"})
        response = connection.getresponse()
        if response.status != 200:
            raise RuntimeError(f"{response.status}: {response.read().decode(errors='replace')}")
        lines = (line for line in response if line.startswith(b"data:") and not line.startswith(DONE))
        return [time.perf_counter() - began for _ in lines]


def times_of_all(url: str, bodies: list[dict[str, Any]]) -> list[list[float]]:
    began = time.perf_counter()
    with ThreadPoolExecutor(len(bodies)) as pool:
        return list(pool.map(lambda body: event_times(url, body, began), bodies))


def main() -> None:
    for line in sys.stdin:
        job = json.loads(line)
        print(json.dumps(times_of_all(job["url"], job["bodies"])), flush=True)


if __name__ == "__main__":
    main()
