"""The prefix part of `ktdesk bench --server`: the time to the first token of a prompt whose beginning is new, is in
memory, or is on disk after the server was ended and started again."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from ktdesk.bench_client import BenchClient
from ktdesk.finding import waits_until_ready
from ktdesk.options import EngineOptions
from ktdesk.server_records import stop_server
from ktdesk.settings import Settings
from ktdesk.starting import StartedServer
from ktdesk.terminal import Progress
from ktdesk_engine.gguf.file import GGUFFile

QUESTION_TOKENS = 16
"""After a prefix: what differs from request to request."""
DISK_GIB = 8
STOP_SECONDS = 60.0
KEEP_ALIVE_SECONDS = 600.0
"""Where this process is killed, its server leaves by itself."""


@dataclass(frozen=True)
class PrefixPlan:
    prefix: int
    """Tokens."""
    repeat: int
    """Prefixes."""

    @property
    def context(self) -> int:
        return self.prefix + QUESTION_TOKENS + 1


@dataclass(frozen=True)
class PrefixTimes:
    """Seconds to the first token, of each prefix."""

    new: tuple[float, ...]
    memory: tuple[float, ...]
    disk: tuple[float, ...]


class PrefixBench:
    """Of one model."""

    def __init__(
        self, path: Path, options: EngineOptions, plan: PrefixPlan, client: BenchClient, progress: Progress
    ) -> None:
        self._path, self._plan, self._client, self._progress = path, plan, client, progress
        self._options = replace(options, context=plan.context)
        self._random = np.random.default_rng(0)
        with GGUFFile.open(path) as file:
            self._vocab_size = len(file.metadata["tokenizer.ggml.tokens"])

    def times(self) -> PrefixTimes:
        """New and from memory by turns: the machine may change its speed meanwhile."""
        prefixes = [self._ids(self._plan.prefix) for _ in range(self._plan.repeat)]
        with TemporaryDirectory(prefix="ktdesk-bench-") as folder:
            settings = Settings(home=folder)
            with self._served(settings) as url:
                pairs = [
                    (self._first_token(url, each, "new"), self._first_token(url, each, "in memory"))
                    for each in prefixes
                ]
            _forget_files(settings.prefix_folder)
            with self._served(settings) as url:
                disk = [self._first_token(url, prefix, "on disk") for prefix in prefixes]
        new, memory = zip(*pairs, strict=True)
        return PrefixTimes(new, memory, tuple(disk))

    @contextmanager
    def _served(self, settings: Settings) -> Iterator[str]:
        """The URL of a process. It has room for all prefixes in memory, and for one more."""
        self._progress.step(f"loading {self._path.name}")
        limits = ("--parallel", str(self._plan.repeat + 1), "--cache-disk", str(DISK_GIB))
        started = StartedServer(self._path, settings, self._options, KEEP_ALIVE_SECONDS, limits)
        try:
            record = started.record()
            if not waits_until_ready(record):
                raise started.failure()
            yield record.url
            stop_server(record, STOP_SECONDS)
        finally:
            started.stop()

    def _first_token(self, url: str, prefix: list[int], where: str) -> float:
        """Seconds until it. The question after the prefix is a new one."""
        self._progress.step(f"first token, prefix {where}")
        prompt = [*prefix, *self._ids(QUESTION_TOKENS)]
        body = {"prompt": prompt, "max_tokens": 1, "temperature": 0, "ignore_eos": True, "stream": True}
        ((first, *_),) = self._client.ask(f"{url}/v1/completions", [body])
        return first

    def _ids(self, count: int) -> list[int]:
        """Random."""
        return [int(token_id) for token_id in self._random.integers(0, self._vocab_size, count)]


def _forget_files(folder: Path) -> None:
    """So that they are read from the disk, as after the machine was started anew."""
    for path in folder.rglob("*.page"):
        with path.open("rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
