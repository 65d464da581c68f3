"""Repeated measurements, each between two looks at the ceilings, and what is said about them."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from ktdesk_engine.benchmark.ceilings import Ceilings, Probes

FEWEST = 3
"""Samples, however long they take."""


@dataclass(frozen=True)
class Spread:
    """Of a few values."""

    median: float
    minimum: float
    maximum: float

    @classmethod
    def of(cls, values: Iterable[float]) -> Spread:
        ascending = sorted(values)
        return cls(statistics.median(ascending), ascending[0], ascending[-1])


@dataclass(frozen=True)
class Work:
    """What one sample has to do, whoever does it."""

    num_steps: int
    """Passes through the model or layer, one after the other."""
    num_tokens: int
    """Of all steps together."""
    operations: float
    """Two for each weight and token."""
    peak: str
    """What the ceiling of the operations is: the name of a peak."""


@dataclass(frozen=True)
class Sample:
    seconds: float
    weight_bytes: int
    """Of the weights in memory that its operations read, as they counted them: of experts those that were hit. An
    operation counts each once: what it reads again comes from a cache."""
    ceilings: Ceilings
    """Midway between before and after."""


@dataclass(frozen=True)
class Row:
    """One line of a report."""

    name: str
    work: Work
    samples: tuple[Sample, ...]

    @property
    def step_seconds(self) -> Spread:
        return Spread.of(sample.seconds / self.work.num_steps for sample in self.samples)

    @property
    def tok_s(self) -> Spread:
        return Spread.of(self.work.num_tokens / sample.seconds for sample in self.samples)

    @property
    def step_weight_bytes(self) -> Spread:
        return Spread.of(sample.weight_bytes / self.work.num_steps for sample in self.samples)

    @property
    def read_bytes_s(self) -> Spread:
        return Spread.of(sample.weight_bytes / sample.seconds for sample in self.samples)

    @property
    def ops_s(self) -> Spread:
        return Spread.of(self.work.operations / sample.seconds for sample in self.samples)

    @property
    def read_share(self) -> Spread:
        """Of the read bandwidth."""
        return Spread.of(self._memory_seconds(sample) / sample.seconds for sample in self.samples)

    @property
    def peak_share(self) -> Spread:
        return Spread.of(self._compute_seconds(sample) / sample.seconds for sample in self.samples)

    @property
    def times_floor(self) -> Spread:
        """How many times the seconds that memory or arithmetic alone, the slower of both, would take."""
        return Spread.of(
            sample.seconds / max(self._memory_seconds(sample), self._compute_seconds(sample)) for sample in self.samples
        )

    def _memory_seconds(self, sample: Sample) -> float:
        return sample.weight_bytes / sample.ceilings.read_bytes_s

    def _compute_seconds(self, sample: Sample) -> float:
        return self.work.operations / sample.ceilings.peak_ops_s[self.work.peak]


Progress = Callable[[str, int, int], None]
"""Name of the row, samples taken, samples wanted."""


def take_samples(
    name: str,
    work: Work,
    job: Callable[[], float],
    probes: Probes,
    repeat: int,
    progress: Progress,
    max_seconds: float = math.inf,
) -> Row:
    """job does the work once, on the pool of the probes, and returns the seconds it took.

    A first time that does not count warms everything up. max_seconds: after so long, fewer samples will do, but some.
    """
    progress(name, 0, repeat)
    job()
    samples = []
    before, started = probes.measure(), time.monotonic()
    for index in range(repeat):
        counted = probes.pool.weight_bytes
        seconds = job()
        counted = probes.pool.weight_bytes - counted
        after = probes.measure()
        samples.append(Sample(seconds, counted, before.midway(after)))
        before = after
        progress(name, index + 1, repeat)
        if len(samples) >= FEWEST and time.monotonic() - started > max_seconds:
            break
    return Row(name, work, tuple(samples))
