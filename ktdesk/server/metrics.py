"""Counts of the server, in the text format of Prometheus."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping

LATENCY_BOUNDS = (0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0)
"""Seconds."""
WATCHING = ("/health", "/metrics", "/ktdesk/experts", "/ktdesk/models")
"""Whoever asks only these does not use the model."""


class Metrics:
    """Requests by path and status, and how long they took. Used on the event loop alone."""

    def __init__(self) -> None:
        self._requests: Counter[tuple[str, int]] = Counter()
        self._latencies: Counter[float] = Counter()
        self._seconds = 0.0
        self.num_open = 0
        self._last_used = time.monotonic()

    def finished(self, route: str, status: int, seconds: float) -> None:
        """route: as the server names it, so that a client cannot make up new ones."""
        self._requests[route, status] += 1
        self._seconds += seconds
        if route not in WATCHING:
            self.note_use()
        self._latencies[next((bound for bound in LATENCY_BOUNDS if seconds <= bound), float("inf"))] += 1

    def note_use(self) -> None:
        """The time without requests begins anew."""
        self._last_used = time.monotonic()

    @property
    def idle_seconds(self) -> float:
        """Since the last request ended; 0 while one is open."""
        return 0.0 if self.num_open else time.monotonic() - self._last_used

    def text(self, engine_numbers: Mapping[str, Mapping[str, float]], num_in_line: int = 0) -> str:
        """engine_numbers: of each model by name. num_in_line: requests whose model waits for others."""
        lines = ["# TYPE ktdesk_http_requests_total counter"]
        for (route, status), count in sorted(self._requests.items()):
            lines.append(f'ktdesk_http_requests_total{{route="{route}",status="{status}"}} {count}')
        lines += ["# TYPE ktdesk_http_open_requests gauge", f"ktdesk_http_open_requests {self.num_open}"]
        lines += ["# TYPE ktdesk_http_waiting_for_model gauge", f"ktdesk_http_waiting_for_model {num_in_line}"]
        lines += self._histogram()
        names = {name for numbers in engine_numbers.values() for name in numbers}
        for name in sorted(names):
            lines.append(f"# TYPE ktdesk_{name} {'counter' if name.endswith('_total') else 'gauge'}")
            for model, numbers in engine_numbers.items():
                if name in numbers:
                    lines.append(f'ktdesk_{name}{{model="{_label(model)}"}} {numbers[name]:g}')
        return "\n".join(lines) + "\n"

    def _histogram(self) -> list[str]:
        name, below = "ktdesk_http_request_seconds", 0
        lines = [f"# TYPE {name} histogram"]
        for bound in LATENCY_BOUNDS:
            below += self._latencies[bound]
            lines.append(f'{name}_bucket{{le="{bound:g}"}} {below}')
        total = sum(self._latencies.values())
        return [*lines, f'{name}_bucket{{le="+Inf"}} {total}', f"{name}_sum {self._seconds:g}", f"{name}_count {total}"]


def _label(text: str) -> str:
    """As the value of a label."""
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
