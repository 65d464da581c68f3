"""Prefill and decode of a loaded model, one sequence at a time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from ktdesk_engine.benchmark.ceilings import Probes
from ktdesk_engine.benchmark.model_weights import ModelWeights, model_weights
from ktdesk_engine.benchmark.samples import Progress, Row, Work, take_samples
from ktdesk_engine.engine import Engine
from ktdesk_engine.errors import ConfigError
from ktdesk_engine.kv_cache import CachedSequence, KVCache
from ktdesk_engine.runner import Runner


@dataclass(frozen=True)
class ModelPlan:
    """What is measured: each prompt length and the answer, at each depth."""

    prompts: tuple[int, ...] = (512,)
    """Tokens computed together."""
    depths: tuple[int, ...] = (0,)
    """Tokens that are in the cache before."""
    answer: int = 32
    """Tokens computed one after the other. 0 leaves decoding out."""
    repeat: int = 7

    def __post_init__(self) -> None:
        if min((*self.prompts, 1)) < 1 or min(self.depths) < 0 or self.answer < 0 or self.repeat < 1:
            raise ConfigError("a prompt and repeat are at least 1, a depth and an answer at least 0")
        if not self.prompts and not self.answer:
            raise ConfigError("neither prefill nor decode is asked for: give a prompt or an answer of some tokens")

    @property
    def context(self) -> int:
        """Tokens that the cache must hold."""
        return max(self.depths) + max((*self.prompts, self.answer))


class ModelBench:
    """One model, with a cache of its own. Token ids are random, the same in every run."""

    def __init__(self, engine: Engine, plan: ModelPlan) -> None:
        self.weights: ModelWeights = model_weights(engine.file, engine.model)
        self._plan = plan
        self._chunk = engine.config.prefill_chunk
        vocab_size = engine.tokenizer.vocab_size
        assert engine.config.cache_type is not None
        cache = KVCache(engine.model.cache_shapes, plan.context, engine.config.cache_type)
        self._runner = Runner(engine.model, cache, self._chunk, vocab_size)
        self._ids = [int(token) for token in np.random.default_rng(0).integers(0, vocab_size, plan.context)]

    def rows(self, probes: Probes, progress: Progress) -> Iterator[Row]:
        """Each as soon as it is measured."""
        for depth in self._plan.depths:
            sequence = CachedSequence()
            try:
                if depth:
                    progress(f"filling the cache to {depth}", 0, self._plan.repeat)
                    self._runner.prefill(sequence, self._ids[:depth])
                for name, work, job in self._jobs(sequence, depth):
                    yield take_samples(name, work, job, probes, self._plan.repeat, progress)
            finally:
                self._runner.release(sequence)

    def _jobs(self, sequence: CachedSequence, depth: int) -> Iterator[tuple[str, Work, Callable[[], float]]]:
        for num_tokens in self._plan.prompts:
            yield (
                f"prefill {num_tokens} at {depth}",
                self._prefill_work(num_tokens),
                self._prefill(sequence, num_tokens),
            )
        if self._plan.answer:
            yield f"decode {self._plan.answer} at {depth}", self._decode_work(), self._decode(sequence)

    def _prefill_work(self, num_tokens: int) -> Work:
        return Work(
            num_steps=1,
            num_tokens=num_tokens,
            weight_bytes=self.weights.of_prompt(self.weights.memory_bytes, num_tokens, self._chunk),
            operations=self.weights.operations(num_tokens, num_logits=1),
            peak=self.weights.peak,
        )

    def _decode_work(self) -> Work:
        num_tokens = self._plan.answer
        return Work(
            num_steps=num_tokens,
            num_tokens=num_tokens,
            weight_bytes=num_tokens * self.weights.of_token(self.weights.memory_bytes),
            operations=self.weights.operations(num_tokens, num_logits=num_tokens),
            peak=self.weights.peak,
        )

    def _prefill(self, sequence: CachedSequence, num_tokens: int) -> Callable[[], float]:
        depth = sequence.length
        token_ids = self._ids[depth : depth + num_tokens]

        def job() -> float:
            started = time.perf_counter()
            self._runner.prefill(sequence, token_ids)
            return _rewound(sequence, depth, started)

        return job

    def _decode(self, sequence: CachedSequence) -> Callable[[], float]:
        """Greedy: the likeliest token is looked for, but the next one computed is a given one."""
        depth = sequence.length
        token_ids = self._ids[depth : depth + self._plan.answer]

        def job() -> float:
            started = time.perf_counter()
            for token_id in token_ids:
                int(np.argmax(self._runner.decode([sequence], [token_id])))
            return _rewound(sequence, depth, started)

        return job


def _rewound(sequence: CachedSequence, depth: int, started: float) -> float:
    """The seconds since then; the sequence forgets what came after depth, and keeps its pages."""
    seconds = time.perf_counter() - started
    sequence.length = depth
    return seconds
