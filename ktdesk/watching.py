"""What a server does at a moment: from its own numbers, and from what the system says of its process."""

from __future__ import annotations

import json
import re
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import psutil

from ktdesk.amounts import speed_text
from ktdesk.expert_placing import ExpertHeat
from ktdesk.server_answers import body_of
from ktdesk.server_records import ServerRecord
from ktdesk_engine.machine import node_of_cpu

LOOK_SECONDS = 3.0
_SAMPLE = re.compile(r"^ktdesk_(\w+)(?:\{(.*)\})? ([-+.\w]+)$")
_MODEL = re.compile(r'model="((?:[^"\\]|\\.)*)"')
TIERS = ("pool", "ram", "disk")
HEAT_FACTS = tuple(one.name for one in fields(ExpertHeat))
MEMORY_BOUND_SHARE = 0.6
"""From here on a faster memory would help more than anything else."""


MOST_SHARE = 1.15
"""The machine drifts; from here on what was measured is no ceiling."""


@dataclass(frozen=True)
class AcceleratorMemory:
    """What of it experts and the cache have now; where they share it, the border between them moves."""

    expert_bytes: int
    num_experts: int
    """That lie there."""
    cache_bytes: int

    @property
    def expert_share(self) -> float:
        return self.expert_bytes / max(self.expert_bytes + self.cache_bytes, 1)


@dataclass(frozen=True)
class Moment:
    """Rates are of the time since the look before."""

    has_rates: bool = True
    """False at the first look: rates and shares of time are still to be measured, and are zeros."""
    tok_s: float = 0.0
    """Of all answers together."""
    prompt_tok_s: float = 0.0
    num_waiting: int = 0
    num_prefilling: int = 0
    num_decoding: int = 0
    num_open_requests: int = 0
    read_bytes_s: float | None = None
    """Weights read by the last steps of decoding."""
    bandwidth_share: float | None = None
    """Of what the memory gives."""
    ops_s: float | None = None
    """Operations of the weights for the last prompts."""
    peak_share: float | None = None
    """Their share of what tiles or vectors could do."""
    is_on_tiles: bool = False
    """Prompts are computed on tiles (AMX), rather than on vectors."""
    node_percents: Mapping[int, float] = field(default_factory=dict)
    """How busy the cores of each NUMA node are."""
    process_percent: float = 0.0
    """Of one core: the server's."""
    resident_bytes: int = 0
    available_bytes: int = 0
    num_hits: Mapping[str, int] = field(default_factory=dict)
    """Pages found, by tier, since the start."""
    num_missed: int = 0
    ram_bytes: int = 0
    ram_limit_bytes: int = 0
    accelerator: AcceleratorMemory | None = None

    @property
    def is_busy(self) -> bool:
        return self.num_decoding + self.num_prefilling > 0 or self.tok_s > 0

    @property
    def is_reading(self) -> bool:
        """Some prompt."""
        return self.num_prefilling > 0 or self.prompt_tok_s > 0

    @property
    def ceiling_bytes_s(self) -> float | None:
        if not self.read_bytes_s or not self.bandwidth_share:
            return None
        return self.read_bytes_s / self.bandwidth_share


class Watcher:
    """Looks at one server. Each look asks it, so not for an event loop."""

    def __init__(self, record: ServerRecord, api_key: str | None = None) -> None:
        self.record = record
        self._api_key = api_key
        self._nodes = node_of_cpu()
        self._before: tuple[float, dict[str, float]] | None = None
        self._process: psutil.Process | None = None
        self._cpu_times: list[tuple[float, float]] = []

    def look(self) -> Moment | None:
        """None where the server does not answer."""
        text = self._ask("/metrics")
        if text is None:
            return None
        now, numbers = time.monotonic(), numbers_of(text.decode("utf-8", errors="replace"), self.record.model)
        has_rates = self._before is not None
        seconds, before = (1.0, numbers) if self._before is None else (now - self._before[0], self._before[1])
        self._before = now, numbers

        def rate(name: str) -> float:
            return max(numbers.get(name, 0.0) - before.get(name, 0.0), 0.0) / max(seconds, 1e-6)

        percent, resident = self._of_process()
        return Moment(
            has_rates=has_rates,
            tok_s=rate("answer_tokens_total"),
            prompt_tok_s=rate("prompt_tokens_total"),
            num_waiting=int(numbers.get("num_waiting", 0)),
            num_prefilling=int(numbers.get("num_prefilling", 0)),
            num_decoding=int(numbers.get("num_decoding", 0)),
            num_open_requests=max(0, int(numbers.get("http_open_requests", 0)) - 1),  # without this one
            read_bytes_s=numbers.get("decode_weight_bytes_per_second"),
            bandwidth_share=numbers.get("decode_bandwidth_share"),
            ops_s=numbers.get("prefill_operations_per_second"),
            peak_share=numbers.get("prefill_peak_share"),
            is_on_tiles=bool(numbers.get("prefill_on_tiles")),
            node_percents=self._by_node(self._cpu_percents()),
            process_percent=percent,
            resident_bytes=resident,
            available_bytes=int(psutil.virtual_memory().available),
            num_hits={tier: int(numbers.get(f"cache_num_hit_pages_{tier}", 0)) for tier in TIERS},
            num_missed=int(numbers.get("cache_num_missed_pages", 0)),
            ram_bytes=int(numbers.get("cache_ram_bytes", 0)),
            ram_limit_bytes=int(numbers.get("cache_ram_limit_bytes", 0)),
            accelerator=accelerator_of(numbers),
        )

    def experts(self) -> ExpertHeat:
        """Empty where the server does not say."""
        answer = self._ask("/ktdesk/experts")
        try:
            facts: Any = json.loads(answer or b"{}")
            return ExpertHeat(**{name: facts[name] for name in HEAT_FACTS if name in facts})
        except (ValueError, TypeError):  # not ours
            return ExpertHeat()

    def _ask(self, path: str) -> bytes | None:
        answer = body_of(self.record.url, path, LOOK_SECONDS, self._api_key)
        return answer[1] if answer is not None and answer[0] == 200 else None

    def _of_process(self) -> tuple[float, int]:
        """Percent of a core since the last look, and resident bytes. Zeros where it is gone."""
        try:
            if self._process is None:
                self._process = psutil.Process(self.record.pid)
            return self._process.cpu_percent(), int(self._process.memory_info().rss)
        except psutil.Error:
            return 0.0, 0

    def _cpu_percents(self) -> list[float]:
        """How busy each processor was since the look before. psutil's own are of the thread's: ours change."""
        now = [_busy_and_all(times) for times in psutil.cpu_times(percpu=True)]
        before, self._cpu_times = self._cpu_times or now, now
        pairs = zip(before, now, strict=False)
        return [
            100 * max(busy - busy_0, 0.0) / max(total - total_0, 1e-6) for (busy_0, total_0), (busy, total) in pairs
        ]

    def _by_node(self, percents: Sequence[float]) -> dict[int, float]:
        of_nodes = defaultdict(list)
        for cpu, percent in enumerate(percents):
            of_nodes[self._nodes.get(cpu, 0)].append(percent)
        return {node: sum(values) / len(values) for node, values in sorted(of_nodes.items())}


def _busy_and_all(times: Any) -> tuple[float, float]:
    """Seconds of a processor. Those of guests are in its user's, too."""
    seconds = times._asdict()
    total = sum(value for name, value in seconds.items() if not name.startswith("guest"))
    return total - seconds["idle"] - seconds.get("iowait", 0.0), total


def numbers_of(text: str, model: str) -> dict[str, float]:
    """The server's numbers and those of one model, without the prefix; histograms left out."""
    numbers = {}
    for line in text.splitlines():
        sample = _SAMPLE.match(line)
        if sample is None:
            continue
        name, labels, value = sample.groups()
        of_model = _MODEL.search(labels or "")
        if labels and (of_model is None or of_model[1] != model):
            continue
        numbers[name] = float(value)
    return numbers


def limit_words(moment: Moment) -> str:
    """What holds the server up now, in words."""
    if not moment.is_busy:
        return "idle"
    if moment.num_prefilling and moment.prompt_tok_s > moment.tok_s:
        return f"compute-bound: prompts are read at {prompt_words(moment)}"
    if moment.num_prefilling and not moment.num_decoding:
        return "a prompt is read"
    ceiling, share, read = moment.ceiling_bytes_s, moment.bandwidth_share, moment.read_bytes_s
    if ceiling is not None and share is not None and share > MOST_SHARE:
        words = f"memory-bound: weights are read at {speed_text(share * ceiling)}, though only {speed_text(ceiling)}"
        return f"{words} were measured: `ktdesk probe --measure` on an idle machine finds more"
    if ceiling is not None and share is not None:
        kind = "memory-bound" if share >= MEMORY_BOUND_SHARE else "not bound by memory"
        return f"{kind}: {share:.0%} of {speed_text(ceiling)}".replace("%", " %")
    if read is not None:
        return f"weights are read at {speed_text(read)}; `ktdesk probe --measure` finds what the memory could give"
    return "decoding"


def prompt_words(moment: Moment) -> str:
    """How fast prompts are read, and what of the arithmetic that takes, where both are known."""
    words = f"{moment.prompt_tok_s:,.0f} tok/s"
    if not moment.prompt_tok_s or moment.peak_share is None:
        return words
    what = "tiles" if moment.is_on_tiles else "vectors"
    return f"{words}, {moment.peak_share * 100:.0f} % of the peak of {what}"


def heat_words(heat: ExpertHeat) -> str:
    """How uneven the use of experts is."""
    if not heat.total:
        return "No expert was used yet."
    rates = sorted((rate for row in heat.rates for rate in row), reverse=True)
    fifth = sum(rates[: max(1, len(rates) // 5)]) / heat.total
    return f"The most used fifth of all experts takes {fifth * 100:.0f} % of the tokens."


def accelerator_of(numbers: Mapping[str, float]) -> AcceleratorMemory | None:
    """None without one."""
    names = ("accelerator_expert_bytes", "accelerator_resident_experts", "accelerator_cache_bytes")
    if any(name not in numbers for name in names):
        return None
    return AcceleratorMemory(*(int(numbers[name]) for name in names))
