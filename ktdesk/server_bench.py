"""What `ktdesk bench --server` measures: the same engine asked over HTTP and asked directly, by turns in one run.

The server of streams and overhead runs in this process, as `ktdesk serve` runs it: so its engine can be asked
directly, too. That of the prefixes is a process that is ended and started again (`prefix_bench`).
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np

from ktdesk.bench_client import bench_client
from ktdesk.errors import UsageError
from ktdesk.options import EngineOptions
from ktdesk.prefix_bench import PrefixBench, PrefixPlan
from ktdesk.server.hosting import ModelHost
from ktdesk.server.known_models import KnownModels
from ktdesk.server.opening import OpenSettings
from ktdesk.server.running import listening_socket, make_server
from ktdesk.server.settings import ServerSettings
from ktdesk.terminal import Progress
from ktdesk_engine.benchmark.conditions import Load, LoadMeter, Machine, read_machine
from ktdesk_engine.benchmark.model import ModelBench, ModelPlan
from ktdesk_engine.benchmark.samples import Spread
from ktdesk_engine.engine import Engine
from ktdesk_engine.kv_cache import PAGE_SIZE
from ktdesk_engine.scheduler.limits import SchedulerLimits

PROMPT_TOKENS = 64
"""Of the streams whose pace is measured."""
PARTS = ("prefix", "streams", "overhead")


@dataclass(frozen=True)
class ServerPlan:
    parts: tuple[str, ...] = PARTS
    prefix: int = 4000
    """Tokens."""
    streams: int = 4
    answer: int = 32
    """Tokens of each stream."""
    repeat: int = 3

    def __post_init__(self) -> None:
        for part in self.parts:
            if part not in PARTS:
                raise UsageError(f"--part is one of {', '.join(PARTS)}: {part!r}")
        for name, value, least in (("prefix", self.prefix, PAGE_SIZE), ("streams", self.streams, 1)):
            if value < least:
                raise UsageError(f"--{name} must be at least {least}: {value}")
        if self.answer < 3 or self.repeat < 1:
            raise UsageError("--answer must be at least 3 with --server, and --repeat at least 1")

    @property
    def context(self) -> int:
        """Of the streams."""
        return 4 * PROMPT_TOKENS + 2 * self.answer


@dataclass(frozen=True)
class ServerRow:
    """One thing that was measured, and what it is compared with."""

    name: str
    unit: str
    measured: Spread
    reference: Spread
    reference_name: str
    shares: Spread
    """Of measured and reference of the same turn; for the overhead, what is beyond the reference."""
    target: float
    is_upper_bound: bool

    @property
    def is_met(self) -> bool:
        return self.shares.median <= self.target if self.is_upper_bound else self.shares.median >= self.target


class ServerBench:
    """Of one model."""

    def __init__(self, path: Path, options: EngineOptions, plan: ServerPlan) -> None:
        self._path, self._options, self._plan = path, options, plan
        self._progress = Progress()
        self._random = np.random.default_rng(0)
        self._vocab_size = 0
        self._name = KnownModels([path]).own.name

    def rows(self) -> Iterator[ServerRow]:
        with bench_client() as self._client:
            try:
                if "prefix" in self._plan.parts:
                    yield from self._prefixes()
                if self._plan.parts != ("prefix",):
                    yield from self._against_engine()
            finally:
                self._progress.erase()

    def _prefixes(self) -> Iterator[ServerRow]:
        plan = PrefixPlan(self._plan.prefix, self._plan.repeat)
        times = PrefixBench(self._path, self._options, plan, self._client, self._progress).times()
        yield _time_row("first token, prefix from memory", times.memory, times.new, 0.05)
        yield _time_row("first token, prefix from disk", times.disk, times.new, 0.15)

    def _against_engine(self) -> Iterator[ServerRow]:
        with self._served() as (url, engine):
            if "streams" in self._plan.parts:
                yield self._streams(url, engine)
            if "overhead" in self._plan.parts:
                yield self._overhead(url, engine)

    @contextmanager
    def _served(self) -> Iterator[tuple[str, Engine]]:
        """URL, and the engine behind it."""
        self._progress.step(f"loading {self._path.name}")
        plan = self._plan
        limits = SchedulerLimits(max_running=max(plan.streams, 1))
        config = replace(replace(self._options, context=plan.context).config, num_sequences=limits.max_running)
        how = OpenSettings(config, limits)
        settings = ServerSettings(port=0)
        host = ModelHost(KnownModels([self._path]), settings, how)
        with listening_socket(settings) as listener:
            server = make_server(host, settings)
            thread = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[listener])), daemon=True)
            thread.start()
            loaded = threading.Event()
            host.start(loaded.set)
            loaded.wait()
            if host.failure is not None:
                raise host.failure
            engine = host.models[0].engine
            if not isinstance(engine, Engine):
                raise UsageError("--server measures models that this engine computes itself")
            self._vocab_size = engine.tokenizer.vocab_size
            try:
                yield f"http://127.0.0.1:{listener.getsockname()[1]}", engine
            finally:
                server.stop()
                thread.join()
                host.close()

    def _streams(self, url: str, engine: Engine) -> ServerRow:
        """Tokens a second of all together, while all of them answer."""
        plan = self._plan
        self._progress.step(f"{plan.streams} streams")
        bench, served, direct = _direct(engine, plan, plan.streams), [], []
        for _ in range(1 + plan.repeat):  # the first warms up
            bodies = [self._body(self._ids(PROMPT_TOKENS), 2 * plan.answer) for _ in range(plan.streams)]
            served.append(joint_tok_s(self._client.ask(f"{url}/v1/completions", bodies)))
            direct.append(plan.streams / bench.decode_step_seconds(plan.streams))
        served, direct = served[1:], direct[1:]
        return ServerRow(
            name=f"{plan.streams} streams",
            unit="tok/s",
            measured=Spread.of(served),
            reference=Spread.of(direct),
            reference_name="of the engine's own rate",
            shares=Spread.of(mine / its for mine, its in zip(served, direct, strict=True)),
            target=0.9,
            is_upper_bound=False,
        )

    def _overhead(self, url: str, engine: Engine) -> ServerRow:
        """Of a token of one chat, what the engine's step does not take."""
        plan = self._plan
        self._progress.step("one stream")
        bench, served, direct = _direct(engine, plan, 1), [], []
        text = "Tell me a story. " * 8
        for _ in range(1 + plan.repeat):
            message = {"role": "user", "content": text}
            body = {**self._sampled(2 * plan.answer), "messages": [message], "stream_options": {"include_usage": True}}
            (times,) = self._client.ask(f"{url}/v1/chat/completions", [body])
            served.append((times[-1] - times[0]) / (2 * plan.answer - 1))
            direct.append(bench.decode_step_seconds(1))
        served, direct = served[1:], direct[1:]
        return ServerRow(
            name="1 stream, a token",
            unit="ms",
            measured=Spread.of(1e3 * seconds for seconds in served),
            reference=Spread.of(1e3 * seconds for seconds in direct),
            reference_name="beyond the engine's step",
            shares=Spread.of(mine / its - 1 for mine, its in zip(served, direct, strict=True)),
            target=0.05,
            is_upper_bound=True,
        )

    def _ids(self, count: int) -> list[int]:
        """Random."""
        return [int(token_id) for token_id in self._random.integers(0, self._vocab_size, count)]

    def _body(self, token_ids: list[int], max_tokens: int) -> dict[str, Any]:
        return {**self._sampled(max_tokens), "prompt": token_ids}

    def _sampled(self, max_tokens: int) -> dict[str, Any]:
        return {"model": self._name, "max_tokens": max_tokens, "temperature": 0, "ignore_eos": True, "stream": True}


def _time_row(name: str, cached: Sequence[float], new: Sequence[float], target: float) -> ServerRow:
    return ServerRow(
        name=name,
        unit="ms",
        measured=Spread.of(1e3 * seconds for seconds in cached),
        reference=Spread.of(1e3 * seconds for seconds in new),
        reference_name="of the time of a new prefix",
        shares=Spread.of(mine / its for mine, its in zip(cached, new, strict=True)),
        target=target,
        is_upper_bound=True,
    )


def _direct(engine: Engine, plan: ServerPlan, batch: int) -> ModelBench:
    """Measures as `ktdesk bench` does; the server's thread waits meanwhile."""
    return ModelBench(engine, ModelPlan((), (PROMPT_TOKENS,), 2 * plan.answer, (batch,), 1))


def joint_tok_s(times: Sequence[Sequence[float]]) -> float:
    """While all of them answered: from when the last began to when the first ended."""
    begin, end = max(each[0] for each in times), min(each[-1] for each in times)
    if end <= begin:
        raise UsageError("the answers were over before all had begun: give a larger --answer")
    count = sum(begin < moment <= end for each in times for moment in each)
    return count / (end - begin)


@dataclass(frozen=True)
class ServerReport:
    subject: str
    date: str
    machine: Machine
    compute: str
    plan: ServerPlan
    load: Load
    rows: tuple[ServerRow, ...]


def bench_server(path: Path, options: EngineOptions, plan: ServerPlan) -> ServerReport:
    meter = LoadMeter()
    rows = tuple(ServerBench(path, options, plan).rows())
    date = datetime.now(timezone.utc).isoformat(timespec="seconds")
    return ServerReport(path.name, date, read_machine(), options.compute, plan, meter.read(), rows)


def as_facts(report: ServerReport) -> dict[str, Any]:
    rows = [{**asdict(row), "is_met": row.is_met} for row in report.rows]
    return {**asdict(report), "rows": rows}


def as_text(report: ServerReport) -> str:
    """For people."""
    machine, plan = report.machine, report.plan
    head = (
        f"measured  {report.subject}, served; {report.compute}, median of {plan.repeat}, {report.date}",
        f"machine   {machine.cpu}, {machine.num_cores} cores; others used {report.load.other_cores:.1f} of them",
    )
    return "\n".join([*head, "", *(_line(row) for row in report.rows)])


def _line(row: ServerRow) -> str:
    bound = "at most" if row.is_upper_bound else "at least"
    verdict = "met" if row.is_met else "missed"
    share = f"{row.shares.median:.1%} ({row.shares.minimum:.1%} to {row.shares.maximum:.1%}) {row.reference_name}"
    figures = f"{row.measured.median:,.1f} {row.unit} to {row.reference.median:,.1f}"
    return f"{row.name:<33}{figures:>24}   {share}; {bound} {row.target:.0%}: {verdict}"
