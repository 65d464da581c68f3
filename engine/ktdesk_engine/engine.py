"""A loaded model that answers: `Engine.load`, then `stream`, or `score`.

with Engine.load("model.gguf") as engine:
    for event in engine.stream(Request(engine.chat_ids([{"role": "user", "content": "Hello"}]))):
        print(event.text, end="")
"""

from __future__ import annotations

import operator
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from ktdesk_engine import kernels
from ktdesk_engine.backends.cpu import CpuBackend
from ktdesk_engine.calibration import find_min_tile_rows, typical_experts
from ktdesk_engine.chat.template import ChatTemplate
from ktdesk_engine.compute import decide_compute, fixed_min_tile_rows
from ktdesk_engine.config import EngineConfig, Request, SamplingConfig, is_sequence
from ktdesk_engine.errors import ConfigError, ContextOverflowError, ModelFileError, RequestError
from ktdesk_engine.gguf.file import GGUFFile
from ktdesk_engine.gguf.hparams import Metadata
from ktdesk_engine.kernels import Floats, WorkerPool
from ktdesk_engine.kernels.pools import NEVER
from ktdesk_engine.kv_cache import CachedSequence, KVCache
from ktdesk_engine.load_progress import LoadProgress
from ktdesk_engine.machine import available_memory_bytes, thread_places
from ktdesk_engine.memory import decide_cache_type, decide_context
from ktdesk_engine.models.registry import family_of
from ktdesk_engine.packing import check_memory, load_weights, packed_model_bytes
from ktdesk_engine.runner import Runner
from ktdesk_engine.sampler import Sampler, TokenLogprobs, log_softmax, token_logprobs
from ktdesk_engine.stop_strings import Passed, StopStrings
from ktdesk_engine.tokenizer.tokenizer import Tokenizer

FinishReason = Literal["stop", "length"]


@dataclass(frozen=True)
class Timings:
    """What one answer took."""

    num_prompt_tokens: int
    num_answer_tokens: int
    prefill_seconds: float
    """Until the first token was chosen."""
    decode_seconds: float
    """From the first token to the last."""
    step_seconds: float
    """Of those, what was not the caller's: the model, the choice of tokens and their text."""
    busy_seconds: float
    """Of those, what the model's operations took; the rest is Python's."""
    seed: int
    """With it, the same request gives the same answer."""

    @property
    def prefill_tok_s(self) -> float:
        return self.num_prompt_tokens / self.prefill_seconds if self.prefill_seconds else 0.0

    @property
    def decode_tok_s(self) -> float:
        """Without the first token, which the prefill gives."""
        return (self.num_answer_tokens - 1) / self.decode_seconds if self.decode_seconds else 0.0

    @property
    def python_share(self) -> float:
        """Of the time of a decode step."""
        return 1 - self.busy_seconds / self.step_seconds if self.step_seconds else 0.0


@dataclass(frozen=True)
class StreamEvent:
    """One step of an answer. The texts of all events are the answer."""

    text: str
    """May be empty: half a character, or what may become a stop string, is held back."""
    token_ids: tuple[int, ...]
    """The token that was chosen; an end token is not among them."""
    logprobs: tuple[TokenLogprobs, ...] = ()
    """One for each token id, if asked for."""
    finish_reason: FinishReason | None = None
    """On the last event."""
    timings: Timings | None = None
    """On the last event."""


class Engine:
    """One model in memory. One thread at a time; several streams may be open, each with its own place in the cache."""

    def __init__(
        self, file: GGUFFile, config: EngineConfig, progress: Callable[[LoadProgress], None] = lambda progress: None
    ) -> None:
        self.file = file
        self._is_closed = False
        places = thread_places(config.num_threads, config.pinning, config.num_nodes)
        self.pool = pool = kernels.worker_pool(len(places), config.isa, places)
        self.model = family_of(file)(file, CpuBackend(pool))
        self.tokenizer = Tokenizer.from_gguf(file)
        if self.tokenizer.vocab_size > self.model.vocab_size:
            raise ModelFileError(
                file.path,
                f"there are {self.tokenizer.vocab_size} tokens, but {self.model.vocab_size} rows in the embedding",
            )
        self.chat_template = ChatTemplate.from_gguf(file)
        self.recommended_sampling = recommended_sampling(file.path, file.keys)
        compute = decide_compute(config.compute, pool)
        pool.attends_on_tiles = compute in ("auto", "bf16")
        panel_bytes = packed_model_bytes(self.model.packables) if compute != "float32" else 0
        available_bytes = available_memory_bytes()
        check_memory(panel_bytes, available_bytes)
        cache_type = decide_cache_type(config.cache_type, compute)
        self.config = replace(
            config,
            compute=compute,
            min_tile_rows=config.min_tile_rows if compute == "auto" else None,
            num_threads=pool.num_threads,
            isa=pool.isa,
            cache_type=cache_type,
            context=decide_context(config.context, self.model, available_bytes - panel_bytes, cache_type),
        )
        """With everything decided."""
        assert self.config.context is not None
        self.context: int = self.config.context
        cache = KVCache(self.model.cache_shapes, self.context, cache_type)
        load_weights(self.model.packables, self.model.tensor_names, pool, file, progress, packs=compute != "float32")
        pool.min_tile_rows = self._decide_min_tile_rows(pool)
        if compute == "auto":
            self.config = replace(self.config, min_tile_rows=pool.min_tile_rows)
        self.runner = Runner(
            self.model, cache, config.prefill_chunk, self.tokenizer.vocab_size, use_programs=config.program
        )

    def _decide_min_tile_rows(self, pool: WorkerPool) -> int:
        fixed = fixed_min_tile_rows(self.config.compute, self.config.min_tile_rows, pool)
        if fixed is not None:
            return fixed
        experts = typical_experts(self.model.packables)
        return NEVER if experts is None else find_min_tile_rows(pool, experts)

    @classmethod
    def load(
        cls,
        path: str | Path,
        config: EngineConfig | None = None,
        progress: Callable[[LoadProgress], None] = lambda progress: None,
    ) -> Engine:
        """Maps the model, looks at all its weights, and packs them unless they are computed in float32.

        progress may raise, to cancel.
        """
        file = GGUFFile.open(path)
        try:
            return cls(file, config or EngineConfig(), progress)
        except BaseException:
            file.close()
            raise

    def close(self) -> None:
        """Ends the template's process and lets go of the file. After it, a request is a ValueError."""
        self._is_closed = True
        self.chat_template.close()
        self.file.close()

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def prompt_ids(self, text: str) -> tuple[int, ...]:
        """Raw text to go on from, with a BOS if the file asks for one; special tokens in it are plain text."""
        return tuple(self.tokenizer.encode(text, add_bos=self.tokenizer.adds_bos))

    def chat_ids(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        variables: Mapping[str, Any] | None = None,
    ) -> tuple[int, ...]:
        """A conversation by the chat template, up to where the model's answer begins."""
        self._check_open()
        chat = self.chat_template.render(messages, tools=tools, variables=variables or {})
        ids = self.tokenizer.encode(
            chat.text,
            add_bos=self.tokenizer.adds_bos,
            parse_special=True,
            literal_spans=chat.literal_spans,
        )
        return tuple(ids)

    def score(self, token_ids: Sequence[int]) -> Floats:
        """Log-probabilities (T, V); row t is of the token after token_ids[: t + 1]."""
        self._check_open()
        ids = self._checked_ids(token_ids)
        if not ids:
            raise RequestError("there are no tokens to score: give at least one")
        if len(ids) > self.context:
            raise ContextOverflowError(
                f"{len(ids)} tokens do not fit the context of {self.context}: score fewer at a time"
            )
        sequence = CachedSequence()
        try:
            return np.concatenate([log_softmax(x) for x in self.runner.all_logits(sequence, ids)])
        finally:
            self.runner.release(sequence)

    def stream(self, request: Request) -> Generator[StreamEvent, None, None]:
        """Answers token by token. Closing the generator cancels, and frees what the answer held."""
        self._check_open()
        request = replace(request, token_ids=tuple(self._checked_ids(request.token_ids)))
        self._checked_ids([token_id for token_id, _ in request.sampling.logit_bias], "logit_bias")
        if len(request.token_ids) >= self.context:
            raise ContextOverflowError(
                f"the prompt has {len(request.token_ids)} tokens, and the context of {self.context} must hold the "
                "answer too: shorten the prompt, or start with a larger context"
            )
        return self._answer(request)

    def _answer(self, request: Request) -> Generator[StreamEvent, None, None]:
        sequence = CachedSequence()
        try:
            yield from Answer(request, self.tokenizer, self.context).events(self.runner, sequence)
        finally:
            self.runner.release(sequence)

    def _check_open(self) -> None:
        if self._is_closed:
            raise ValueError(f"the engine of {self.file.path} is closed")

    def _checked_ids(self, token_ids: Sequence[int], what: str = "the prompt") -> list[int]:
        """As Python's integers, whichever those of the caller are."""
        if not is_sequence(token_ids):
            raise RequestError(f"{what} must be a sequence of token ids: {token_ids!r:.80}")
        try:
            ids = list(map(operator.index, token_ids))
        except TypeError:
            raise RequestError(f"{what} has token ids that are no integers: {token_ids!r:.80}") from None
        for token_id in ids:
            if not 0 <= token_id < self.tokenizer.vocab_size:
                raise RequestError(
                    f"{what} has the token id {token_id}, but the vocabulary has {self.tokenizer.vocab_size} tokens"
                )
        return ids


class Answer:
    """The state of one answer while it is made."""

    def __init__(self, request: Request, tokenizer: Tokenizer, context: int) -> None:
        self._request = request
        self._sampler = Sampler(request.sampling)
        self._end_ids = frozenset() if request.ignore_eos else tokenizer.end_ids
        self._decoder = tokenizer.stream_decoder(at_start=not request.is_continuation)
        self._stops = StopStrings(request.stop)
        self._ids = list(request.token_ids)
        room = context - len(self._ids)
        self._max_tokens = min(room, request.max_tokens or room)
        self._num_answer_tokens = 0

    def events(self, runner: Runner, sequence: CachedSequence) -> Iterator[StreamEvent]:
        started = time.perf_counter()
        event = self._next(runner.prefill(sequence, self._ids))
        first = time.perf_counter()
        step_seconds = busy_seconds = 0.0
        while event.finish_reason is None:
            yield event
            step_started, busy_before = time.perf_counter(), runner.busy_seconds
            event = self._next(runner.decode([sequence], self._ids[-1:])[0])
            step_seconds += time.perf_counter() - step_started
            busy_seconds += runner.busy_seconds - busy_before
        timings = Timings(
            num_prompt_tokens=len(self._request.token_ids),
            num_answer_tokens=self._num_answer_tokens,
            prefill_seconds=first - started,
            decode_seconds=time.perf_counter() - first,
            step_seconds=step_seconds,
            busy_seconds=busy_seconds,
            seed=self._sampler.config.seed or 0,
        )
        yield replace(event, timings=timings)

    def _next(self, logits: Floats) -> StreamEvent:
        """Chooses a token and says what it adds."""
        token_id = self._sampler.choose(logits, self._ids)
        if token_id in self._end_ids:
            return StreamEvent(self._rest().text, (), finish_reason="stop")
        self._ids.append(token_id)
        self._num_answer_tokens += 1
        passed = self._stops.push(self._decoder.push(token_id))
        logprobs = self._logprobs(logits, token_id)
        if passed.is_stopped:
            return StreamEvent(passed.text, (token_id,), logprobs, "stop")
        if self._num_answer_tokens >= self._max_tokens:
            rest = self._rest()
            reason: FinishReason = "stop" if rest.is_stopped else "length"
            return StreamEvent(passed.text + rest.text, (token_id,), logprobs, reason)
        return StreamEvent(passed.text, (token_id,), logprobs)

    def _rest(self) -> Passed:
        """What decoder and stop strings still hold. Half a character at the end may be what a stop string asks for."""
        passed = self._stops.push(self._decoder.flush())
        return passed if passed.is_stopped else Passed(passed.text + self._stops.flush(), False)

    def _logprobs(self, logits: Floats, token_id: int) -> tuple[TokenLogprobs, ...]:
        num_top = self._request.num_logprobs
        return () if num_top is None else (token_logprobs(logits, token_id, num_top),)


def recommended_sampling(path: Path, keys: Metadata) -> SamplingConfig:
    """What the file's `general.sampling.*` asks for, over our defaults."""
    default = SamplingConfig()
    try:
        return SamplingConfig(
            temperature=keys.number("general.sampling.temp", default.temperature),
            top_k=keys.integer("general.sampling.top_k", default.top_k),
            top_p=keys.number("general.sampling.top_p", default.top_p),
            min_p=keys.number("general.sampling.min_p", default.min_p),
            repetition_penalty=keys.number("general.sampling.penalty_repeat", default.repetition_penalty),
            penalty_window=keys.integer("general.sampling.penalty_last_n", default.penalty_window),
        )
    except ConfigError as error:
        raise ModelFileError(path, f"general.sampling: {error}") from None
