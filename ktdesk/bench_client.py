"""The client of `ktdesk bench --server`, in a process of its own: sends requests, and says when their answers came.

A line of JSON comes in, such as {"url": ..., "bodies": [...]}; all its requests are sent at once, and a line goes out
with the seconds at which each event of each answer was there, counted from when its request was sent.
"""

from __future__ import annotations

import http.client
import json
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any
from urllib.parse import urlsplit

DONE = b"data: [DONE]"


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
