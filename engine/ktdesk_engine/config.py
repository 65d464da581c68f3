"""What a user can set: the engine, the sampling, one request. Checked here, passed whole."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal

from ktdesk_engine.errors import ConfigError

Compute = Literal["auto", "int8", "float32"]

COMPUTES: tuple[Compute, ...] = ("auto", "int8", "float32")
MAX_LOGPROBS = 100


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise ConfigError(message)


@dataclass(frozen=True)
class EngineConfig:
    """How a model is run. None means that the engine decides (`Engine.config` says what it decided)."""

    compute: Compute = "auto"
    """float32: weights dequantized exactly, activations and cache in float32. The definition of right.
    int8: quantized weights are packed in memory and multiplied as bytes, activations as two bytes of 15 bits; what
    has no panels (float weights, IQ1 to IQ3, TQ) is computed as in float32. auto: int8."""
    context: int | None = None
    """Tokens of prompt and answer together. Decided: what the model was trained for, if memory allows."""
    num_threads: int | None = None
    """Decided: one per physical core that this process may use."""
    isa: str | None = None
    """scalar, avx2 or avx512. Decided: KTDESK_ISA, or the widest that the machine has."""
    prefill_chunk: int = 512
    """Prompt tokens computed together. Changes speed and memory, never the result."""

    def __post_init__(self) -> None:
        _require(self.compute in COMPUTES, f"compute must be one of {', '.join(COMPUTES)}: {self.compute!r}")
        _require(self.context is None or self.context >= 1, f"context must be at least 1: {self.context}")
        _require(
            self.num_threads is None or 1 <= self.num_threads <= 1024,
            f"num_threads must be in 1..1024: {self.num_threads}",
        )
        _require(self.prefill_chunk >= 1, f"prefill_chunk must be at least 1: {self.prefill_chunk}")


@dataclass(frozen=True)
class SamplingConfig:
    """How the next token is chosen. Steps in this order: penalties, logit bias, temperature, top-k, top-p,
    min-p, draw."""

    temperature: float = 0.7
    """0 is greedy: always the likeliest token, the smallest id among equals."""
    top_k: int = 40
    """0 keeps all."""
    top_p: float = 0.95
    min_p: float = 0.05
    """Keeps tokens of at least min_p times the probability of the likeliest."""
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    penalty_window: int = 64
    """Penalties look at this many last tokens, prompt included. -1: all of them."""
    seed: int | None = None
    """None draws a fresh one, which the finished answer reports."""
    logit_bias: tuple[tuple[int, float], ...] = ()
    """(token id, added to its logit)."""

    def __post_init__(self) -> None:
        for name in ("temperature", "top_p", "min_p", "repetition_penalty"):
            value = getattr(self, name)
            _require(math.isfinite(value) and value >= 0, f"{name} must be a number of at least 0: {value}")
        for name in ("presence_penalty", "frequency_penalty"):
            value = getattr(self, name)
            _require(-2 <= value <= 2, f"{name} must be in -2..2: {value}")
        _require(0 < self.top_p <= 1, f"top_p must be above 0 and at most 1: {self.top_p}")
        _require(self.min_p <= 1, f"min_p must be at most 1: {self.min_p}")
        _require(self.top_k >= 0, f"top_k must be at least 0: {self.top_k}")
        _require(self.repetition_penalty > 0, f"repetition_penalty must be above 0: {self.repetition_penalty}")
        _require(self.penalty_window >= -1, f"penalty_window must be at least -1: {self.penalty_window}")
        _require(self.seed is None or 0 <= self.seed < 2**64, f"seed must be an integer in 0..2^64-1: {self.seed}")
        for token_id, bias in self.logit_bias:
            _require(token_id >= 0, f"logit_bias names a token id below 0: {token_id}")
            _require(not math.isnan(bias), f"logit_bias of token {token_id} is not a number")


@dataclass(frozen=True)
class Request:
    """One prompt and how it is to be answered."""

    token_ids: tuple[int, ...]
    sampling: SamplingConfig = field(default_factory=SamplingConfig)
    max_tokens: int | None = None
    """None: until the model stops, or the context is full."""
    stop: tuple[str, ...] = ()
    """Text that ends the answer, and is not part of it; also across token borders."""
    num_logprobs: int | None = None
    """None: no log-probabilities. n: those of the chosen token and of the n likeliest."""
    ignore_eos: bool = False
    """Go on after the model's end token: for measurements."""
    is_continuation: bool = False
    """The answer goes on where text ends, so a space that it begins with is kept."""

    def __post_init__(self) -> None:
        _require(len(self.token_ids) > 0, "the prompt is empty: give at least one token")
        _require(
            self.max_tokens is None or self.max_tokens >= 1,
            f"max_tokens must be at least 1: {self.max_tokens}",
        )
        _require(all(self.stop), "a stop string is empty: leave it out")
        _require(
            self.num_logprobs is None or 0 <= self.num_logprobs <= MAX_LOGPROBS,
            f"num_logprobs must be in 0..{MAX_LOGPROBS}: {self.num_logprobs}",
        )
