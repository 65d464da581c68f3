"""Prefill and decode of a loaded model, one sequence or several together."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from ktdesk_engine.benchmark.ceilings import Probes
from ktdesk_engine.benchmark.model_weights import ModelWeights, model_weights
from ktdesk_engine.benchmark.samples import Progress, Row, Spread, Work, take_samples
from ktdesk_engine.config import Request, SamplingConfig
from ktdesk_engine.engine import Engine
from ktdesk_engine.errors import ConfigError, ResourceError
from ktdesk_engine.kernels import Ids
from ktdesk_engine.kv_cache import CachedSequence, KVCache, cache_bytes
from ktdesk_engine.machine import available_memory_bytes
from ktdesk_engine.runner import Runner

PLANNED_PEAK, TILE_PEAK = "int8", "int8 tiles"
"""That plans count with: of vectors, and beside it of tiles where there are any."""

Job = Callable[[], float]
"""Returns the seconds it took."""


class RowKind(NamedTuple):
    """What a row of a report is of."""

    phase: Literal["prefill", "decode"]
    num_tokens: int
    """Of one sequence."""
    depth: int
    batch: int


@dataclass(frozen=True)
class ModelPlan:
    """What is measured: each prompt length, and the answer of each number of sequences, at each depth."""

    prompts: tuple[int, ...] = (512,)
    """Tokens computed together, of one sequence."""
    depths: tuple[int, ...] = (0,)
    """Tokens that are in the cache before, of each sequence."""
    answer: int = 32
    """Tokens of each sequence computed one after the other. 0 leaves decoding out."""
    batches: tuple[int, ...] = (1,)
    """Sequences decoded together."""
    repeat: int = 7
    max_seconds: float = math.inf
    """For each row: then three samples are enough."""

    def __post_init__(self) -> None:
        if min((*self.prompts, 1)) < 1 or min(self.depths) < 0 or self.answer < 0 or self.repeat < 1:
            raise ConfigError("a prompt and repeat are at least 1, a depth and an answer at least 0")
        if min(self.batches) < 1:
            raise ConfigError("a batch has at least 1 sequence")
        if not self.prompts and not self.answer:
            raise ConfigError("neither prefill nor decode is asked for: give a prompt or an answer of some tokens")

    @property
    def context(self) -> int:
        """Tokens of one sequence that the cache must hold."""
        return max(self.depths) + max((*self.prompts, self.answer + 1))

    @property
    def row_kinds(self) -> list[RowKind]:
        """In the order of the rows."""
        kinds = []
        for depth in self.depths:
            kinds += [RowKind("prefill", num_tokens, depth, 1) for num_tokens in self.prompts]
            kinds += [RowKind("decode", self.answer, depth, batch) for batch in self.batches if self.answer]
        return kinds


class ModelBench:
    """One model, with a cache for as many sequences as are wanted. Token ids are random, the same in every run."""

    def __init__(self, engine: Engine, plan: ModelPlan) -> None:
        self.weights: ModelWeights = model_weights(engine.file, engine.model)
        self._engine, self._plan = engine, plan
        vocab_size = engine.tokenizer.vocab_size
        self._runner = Runner(
            engine.model, _cache(engine, plan), engine.prefill_chunk, vocab_size, engine.config.program
        )
        shape = max(plan.batches), plan.context
        self._ids: Ids = np.random.default_rng(0).integers(0, vocab_size, shape, dtype=np.int32)
        """A row for each sequence."""

    @property
    def peaks(self) -> list[str]:
        """That the rows are compared with, and those that plans count with."""
        batches = self._plan.batches if self._plan.answer else ()
        planned = [PLANNED_PEAK, *([TILE_PEAK] if self._engine.pool.has_tiles else [])]
        return sorted({*planned, *(self._peak(num_tokens) for num_tokens in (*self._plan.prompts, *batches))})

    def warm_up(self) -> int:
        """The longest prompt and a decode step, once: after it, memory is as an answer needs it. Returns how many
        tokens were in the cache."""
        sequence = CachedSequence()
        longest = max(self._plan.prompts, default=1)
        try:
            self._runner.prefill(sequence, self._ids[0, : longest - 1].tolist() or self._ids[0, :1].tolist())
            self._runner.decode([sequence], self._ids[0, :1].tolist())
            return sequence.length
        finally:
            self._runner.release(sequence)

    def rows(self, probes: Probes, progress: Progress) -> Iterator[Row]:
        """Each as soon as it is measured. probes: on the engine's pool."""
        for depth in self._plan.depths:
            sequences = [CachedSequence() for _ in range(max(self._plan.batches))]
            try:
                self._fill(sequences, depth, progress)
                for name, work, job in self._jobs(sequences, depth):
                    yield take_samples(name, work, job, probes, self._plan.repeat, progress, self._plan.max_seconds)
            finally:
                for sequence in sequences:
                    self._runner.release(sequence)

    def decode_step_seconds(self, batch: int) -> float:
        """Of one sample at the first depth, for those who have something else to compare it with than ceilings."""
        sequences = [CachedSequence() for _ in range(batch)]
        try:
            self._fill(sequences, self._plan.depths[0], lambda name, done, wanted: None)
            return self._decode(sequences, self._plan.depths[0])() / self._plan.answer
        finally:
            for sequence in sequences:
                self._runner.release(sequence)

    def python_share(self, sampling: SamplingConfig) -> Spread:
        """Of a step of a streamed answer: what the operations of the model do not take."""
        prompt = tuple(self._ids[0, :1].tolist())
        request = Request(prompt, sampling, max_tokens=self._plan.answer + 1, ignore_eos=True)
        shares = []
        for _ in range(1 + self._plan.repeat):
            *_, last = self._engine.stream(request)
            assert last.timings is not None
            shares.append(last.timings.python_share)
        return Spread.of(shares[1:])  # the first warms up

    def _fill(self, sequences: Sequence[CachedSequence], depth: int, progress: Progress) -> None:
        if depth:
            progress(f"filling the cache to {depth}", 0, self._plan.repeat)
            for sequence, ids in zip(sequences, self._ids, strict=False):
                self._runner.prefill(sequence, ids[:depth].tolist())

    def _jobs(self, sequences: Sequence[CachedSequence], depth: int) -> Iterator[tuple[str, Work, Job]]:
        for num_tokens in self._plan.prompts:
            yield (
                f"prefill {num_tokens} at {depth}",
                self._work(num_steps=1, num_tokens=num_tokens, num_logits=1),
                self._prefill(sequences[0], num_tokens),
            )
        if not self._plan.answer:
            return
        for batch in self._plan.batches:
            num_tokens = batch * self._plan.answer
            yield (
                f"decode {self._plan.answer}{f' x {batch}' if batch > 1 else ''} at {depth}",
                self._work(num_steps=self._plan.answer, num_tokens=num_tokens, num_logits=num_tokens),
                self._decode(sequences[:batch], depth),
            )

    def _work(self, num_steps: int, num_tokens: int, num_logits: int) -> Work:
        peak = self._peak(num_tokens // num_steps)
        return Work(num_steps, num_tokens, self.weights.operations(num_tokens, num_logits), peak)

    def _peak(self, num_tokens: int) -> str:
        """Of what most weights are multiplied on when so many tokens are computed together."""
        together = min(num_tokens, self._engine.prefill_chunk)
        rows = together * (self.weights.expert_share or 1.0)
        pool = self._engine.pool
        if rows < pool.min_tile_rows:
            return self.weights.peak
        return "bf16 tiles" if pool.rounds_to_bfloat16 else "int8 tiles"

    def _prefill(self, sequence: CachedSequence, num_tokens: int) -> Job:
        depth = sequence.length
        token_ids = self._ids[0, depth : depth + num_tokens].tolist()

        def job() -> float:
            started = time.perf_counter()
            self._runner.prefill(sequence, token_ids)
            return _rewound([sequence], depth, started)

        return job

    def _decode(self, sequences: Sequence[CachedSequence], depth: int) -> Job:
        """Greedy: the likeliest token is looked for, but the next one computed is a given one."""
        steps = self._ids[: len(sequences), depth : depth + self._plan.answer].T.tolist()

        def job() -> float:
            started = time.perf_counter()
            for token_ids in steps:
                self._runner.decode(sequences, token_ids).argmax(axis=1)
            return _rewound(sequences, depth, started)

        return job


def _cache(engine: Engine, plan: ModelPlan) -> KVCache:
    """ResourceError where so many sequences do not fit."""
    cache_type = engine.config.cache_type
    assert cache_type is not None
    shapes, num_sequences = engine.model.cache_shapes, max(plan.batches)
    needed_bytes = num_sequences * cache_bytes(shapes, plan.context, cache_type)
    available_bytes = available_memory_bytes()
    if needed_bytes > available_bytes:
        raise ResourceError(
            f"the cache for {num_sequences} sequences of {plan.context} tokens needs {needed_bytes / 2**30:.2f} GiB, "
            f"but {available_bytes / 2**30:.2f} GiB of memory are available: ask for fewer, or for a smaller depth"
        )
    return KVCache(shapes, plan.context, cache_type, num_sequences)


def _rewound(sequences: Sequence[CachedSequence], depth: int, started: float) -> float:
    """The seconds since then; the sequences forget what came after depth, and keep their pages."""
    seconds = time.perf_counter() - started
    for sequence in sequences:
        sequence.length = depth
    return seconds
