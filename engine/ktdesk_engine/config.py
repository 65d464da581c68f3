"""What a user can set: the engine, the sampling, one request. Checked here, passed whole."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, Literal

from ktdesk_engine.errors import ConfigError
from ktdesk_engine.machine import PINNINGS, Pinning
from ktdesk_engine.placement_rules import STRATEGIES, Rule, Strategy

if TYPE_CHECKING:  # settings need no arrays
    from ktdesk_engine.constraint import Constraint

Compute = Literal["auto", "int8", "mixed", "bf16", "float32"]
AcceleratorKind = Literal["cuda", "host-thread"]
CacheType = Literal["float32", "f16", "bf16", "q8_0"]
EngineName = Literal["auto", "ktdesk", "llamacpp"]

COMPUTES: tuple[Compute, ...] = ("auto", "int8", "mixed", "bf16", "float32")
ACCELERATORS: tuple[AcceleratorKind, ...] = ("cuda", "host-thread")
CACHE_TYPES: tuple[CacheType, ...] = ("float32", "f16", "bf16", "q8_0")
ENGINES: tuple[EngineName, ...] = ("auto", "ktdesk", "llamacpp")
OF_ACCELERATORS = (
    *("accelerator_bytes", "accelerator_experts", "placement", "placement_rules"),
    *("move_ms", "share_memory", "stream_prompts"),
)
"""Settings that say nothing without one."""
MAX_LOGPROBS = 100
MAX_BIAS = 1_000_000
"""Beyond every logit, and far from where a sum of them overflows."""


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise ConfigError(message)


def _require_integer(name: str, value: object, low: int, high: int | None = None) -> None:
    _require_kind(Integral, "an integer", name, value, low, high)


def _require_number(name: str, value: object, low: float, high: float | None = None) -> None:
    _require_kind(Real, "a finite number", name, value, low, high)


def _require_kind(kind: type, what: str, name: str, value: object, low: float, high: float | None) -> None:
    """kind: of the tower in `numbers`, to which numpy's belong as well."""
    is_kind = isinstance(value, kind) and not isinstance(value, bool)
    limits = f"of at least {low}" if high is None else f"in {low}..{high}"
    highest = sys.float_info.max if high is None else high
    _require(is_kind and low <= value <= highest, f"{name} must be {what} {limits}: {value!r}")  # type: ignore[operator]


def is_sequence(value: object) -> bool:
    """Whether it has an order and a length, as lists, ranges and arrays have. A text does not count as one."""
    is_ordered = hasattr(value, "__len__") and hasattr(value, "__getitem__")
    return is_ordered and not isinstance(value, (str, bytes, bytearray, Mapping))


@dataclass(frozen=True)
class EngineConfig:
    """How a model is run. None means that the engine decides (`Engine.config` says what it decided)."""

    engine: EngineName = "auto"
    """ktdesk: our own kernels. llamacpp: llama.cpp, by the extra of that name. auto: ours where it knows the model."""
    compute: Compute = "auto"
    """float32: weights dequantized exactly, activations in float32, and the cache too unless cache_type says
    otherwise. The definition of right.
    int8: quantized weights are packed in memory and multiplied as bytes, activations as two bytes of 15 bits; what
    has no panels (F32, IQ1 to IQ3, TQ) is computed as in float32. F16 and BF16 are packed too, and multiplied with
    activations in float32.
    mixed: as int8 for few tokens; for many on tiles (AMX) where there are any, weights and activations as integers of
    16 bits (compute.py has it for each type).
    bf16: weights and activations in bfloat16 on tiles, which is coarser (docs/quality.md); without tiles as int8.
    auto: mixed; int8 where there are no tiles, or with deterministic."""
    min_tile_rows: int | None = None
    """With compute mixed: from how many tokens of one expert, or of a matrix, on tiles are used. Decided: by a
    measurement when the model is loaded. A number makes results the same from one load to the next."""
    context: int | None = None
    """Tokens of prompt and answer together. Decided: what the model was trained for, if memory allows."""
    num_sequences: int = 1
    """The cache holds so many whole contexts: requests at the same time, and beginnings that are kept for others."""
    cache_type: CacheType | None = None
    """How keys and values of past tokens are kept. q8_0: blocks of 32 bytes with a scale, for heads of whole blocks.
    Decided: float32 where compute is, else f16."""
    num_threads: int | None = None
    """Decided: one per physical core that this process may use, within its cgroup's quota."""
    pinning: Pinning | None = None
    """Where threads may run. node: on the cores of their NUMA node. core: on one of them each. none: anywhere.
    Decided: KTDESK_PIN, or node. The thread that calls the engine is never pinned."""
    num_nodes: int | None = None
    """Pretends that the cores are those of so many NUMA nodes. Changes memory and speed, never the result.
    Decided: the machine's."""
    isa: str | None = None
    """scalar, avx2, avx512 or amx. Decided: KTDESK_ISA, or the widest that the machine has."""
    prefill_chunk: int | None = None
    """Prompt tokens computed together. Changes speed and memory; the result only by rounding, where there are tiles.
    Decided: 512, or so many that an expert sees enough of them (prefill_chunk.py)."""
    deterministic: bool = False
    """An answer depends on its request alone: not on who else is answered, nor on what was cached. Each operation is
    computed by one kernel, however many tokens there are: compute mixed becomes int8, attention stays off tiles."""
    experts_used: int | None = None
    """Of a token, fewer than the model was trained with: faster, and another network. Decided: as trained."""
    program: bool = True
    """A step of decoding is recorded once and replayed. Changes speed, never the result."""
    accelerator: AcceleratorKind | None = None
    """Where all but routed experts is computed, and the most used of these. host-thread: a thread of this machine, for
    tests and measurements of the hybrid half."""
    accelerator_bytes: int | None = None
    """Of its memory that may be used. Decided: all that is free."""
    accelerator_experts: int | None = None
    """How many routed experts, of all layers together, lie on it. Decided: as many as fit beside the cache."""
    placement: Strategy = "frequency"
    """Which they are at first (placement.py)."""
    placement_rules: tuple[Rule, ...] = ()
    """What they may be: the first rule that matches counts."""
    share_memory: bool = True
    """Experts and cache share what the accelerator has: pages that no sequence needs are slots of experts. False: the
    cache has its whole size from the start, and experts what is left."""
    move_ms: float = 2.0
    """Now and then experts move to where they are used, between two tokens, for about so long at most. 0: never."""
    stream_prompts: bool = True
    """Long prompts pass all experts through the accelerator, where that is found to be faster than the CPU, and where
    two layers' experts take at most a quarter of its memory."""
    defer: int | Literal["auto"] = 0
    """So many of a token's experts on the CPU come one layer late, while it decodes: faster where an accelerator waits
    for the CPU, and another network (docs/deferral.md). auto: the fewest that hide the CPU, 0 without accelerator."""

    def __post_init__(self) -> None:
        _require(self.engine in ENGINES, f"engine must be one of {', '.join(ENGINES)}: {self.engine!r}")
        _require(self.compute in COMPUTES, f"compute must be one of {', '.join(COMPUTES)}: {self.compute!r}")
        if self.min_tile_rows is not None:
            _require_integer("min_tile_rows", self.min_tile_rows, 1, 2**63 - 1)
            _require(
                self.compute in ("auto", "mixed"),
                f"min_tile_rows is for compute 'mixed'; with {self.compute!r} there is no choice",
            )
        if self.context is not None:
            _require_integer("context", self.context, 1)
        _require(
            self.cache_type is None or self.cache_type in CACHE_TYPES,
            f"cache_type must be one of {', '.join(CACHE_TYPES)}: {self.cache_type!r}",
        )
        if self.num_threads is not None:
            _require_integer("num_threads", self.num_threads, 1, 1024)
        _require(
            self.pinning is None or self.pinning in PINNINGS,
            f"pinning must be one of {', '.join(PINNINGS)}: {self.pinning!r}",
        )
        if self.num_nodes is not None:
            _require_integer("num_nodes", self.num_nodes, 1, 64)
        _require(isinstance(self.deterministic, bool), f"deterministic must be True or False: {self.deterministic!r}")
        _require(
            not (self.deterministic and self.min_tile_rows is not None),
            "min_tile_rows chooses between kernels by the number of tokens; deterministic forbids that: leave one out",
        )
        self._check_accelerator()
        _require_integer("num_sequences", self.num_sequences, 1)
        if self.prefill_chunk is not None:
            _require_integer("prefill_chunk", self.prefill_chunk, 1)
        _require(isinstance(self.program, bool), f"program must be True or False: {self.program!r}")

    @property
    def on_cpu(self) -> EngineConfig:
        """The same without an accelerator."""
        defaults: dict[str, Any] = {name: getattr(EngineConfig, name) for name in OF_ACCELERATORS}
        return replace(self, accelerator=None, **defaults)

    def _check_accelerator(self) -> None:
        _require(
            self.accelerator is None or self.accelerator in ACCELERATORS,
            f"accelerator must be one of {', '.join(ACCELERATORS)}: {self.accelerator!r}",
        )
        for name in ("accelerator_bytes", "accelerator_experts"):
            if getattr(self, name) is not None:
                _require_integer(name, getattr(self, name), 0)
        _require(self.placement in STRATEGIES, f"placement must be one of {', '.join(STRATEGIES)}: {self.placement!r}")
        _require_number("move_ms", self.move_ms, 0)
        _require(isinstance(self.share_memory, bool), f"share_memory must be True or False: {self.share_memory!r}")
        _require(
            isinstance(self.stream_prompts, bool), f"stream_prompts must be True or False: {self.stream_prompts!r}"
        )
        for name in OF_ACCELERATORS:
            is_default = getattr(self, name) == getattr(EngineConfig, name)
            _require(self.accelerator is not None or is_default, f"{name} is for an accelerator, and none is asked for")
        if self.experts_used is not None:
            _require_integer("experts_used", self.experts_used, 1)
        if self.defer != "auto":
            _require_kind(Integral, "auto, or an integer", "defer", self.defer, 0, None)


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
    """(token id, added to its logit). -inf bans the token."""

    def __post_init__(self) -> None:
        _require_number("temperature", self.temperature, 0)
        _require_integer("top_k", self.top_k, 0)
        _require_number("top_p", self.top_p, 0, 1)
        _require(self.top_p > 0, "top_p must be above 0: 0 would leave no token")
        _require_number("min_p", self.min_p, 0, 1)
        _require_number("repetition_penalty", self.repetition_penalty, 0.01, 100)
        _require_number("presence_penalty", self.presence_penalty, -2, 2)
        _require_number("frequency_penalty", self.frequency_penalty, -2, 2)
        _require_integer("penalty_window", self.penalty_window, -1)
        if self.seed is not None:
            _require_integer("seed", self.seed, 0, 2**64 - 1)
        self._check_logit_bias()

    def _check_logit_bias(self) -> None:
        pairs = self.logit_bias
        is_pairs = is_sequence(pairs) and all(is_sequence(pair) and len(pair) == 2 for pair in pairs)
        _require(is_pairs, f"logit_bias must be pairs of a token id and a number: {pairs!r:.80}")
        for token_id, bias in pairs:
            _require_integer("the token id of a logit_bias", token_id, 0)
            if bias != -math.inf:
                _require_number(f"logit_bias of token {token_id}", bias, -MAX_BIAS, MAX_BIAS)


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
    shown_ids: frozenset[int] = frozenset()
    """Control tokens that are spelled out in the answer's text, for whoever parses it; all others are left out."""
    make_constraint: Callable[[], Constraint] | None = None
    """Narrows the choice of each token; made anew for each answer to this request."""

    def __post_init__(self) -> None:
        _require(is_sequence(self.token_ids), f"token_ids must be a sequence, not a {type(self.token_ids).__name__}")
        _require(len(self.token_ids) > 0, "the prompt is empty: give at least one token")
        if self.max_tokens is not None:
            _require_integer("max_tokens", self.max_tokens, 1)
        is_texts = is_sequence(self.stop) and all(isinstance(text, str) for text in self.stop)
        _require(is_texts, f"stop must be a tuple of texts: {self.stop!r:.80}")
        _require(all(self.stop), "a stop string is empty: leave it out")
        if self.num_logprobs is not None:
            _require_integer("num_logprobs", self.num_logprobs, 0, MAX_LOGPROBS)
