"""What every engine does once something computes logits: prompts, requests and their checks, answers, scores.

Knows no model: `Engine` computes with kernels of our own, `LlamaCppEngine` asks llama.cpp.
"""

from __future__ import annotations

import operator
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np

from ktdesk_engine.answer import Answer, StreamEvent
from ktdesk_engine.chat.template import ChatTemplate
from ktdesk_engine.config import EngineConfig, Request, SamplingConfig, is_sequence
from ktdesk_engine.errors import ConfigError, ContextOverflowError, ModelFileError, RequestError
from ktdesk_engine.gguf.file import GGUFFile
from ktdesk_engine.gguf.hparams import Metadata
from ktdesk_engine.kernels import Floats
from ktdesk_engine.kv_cache import CachedSequence
from ktdesk_engine.prefix_cache.cache import PrefixCache
from ktdesk_engine.prefix_cache.limits import CacheLimits
from ktdesk_engine.prefix_cache.pages import PagePool
from ktdesk_engine.sampler import log_softmax
from ktdesk_engine.tokenizer.tokenizer import Tokenizer

AnyEngine = TypeVar("AnyEngine", bound="TextEngine")


class AnswerRunner(Protocol):
    """Computes tokens over the cache."""

    def prefill(
        self, sequence: CachedSequence, token_ids: Sequence[int], before_layer: Callable[[], None] = lambda: None
    ) -> Floats:
        """Adds tokens to a sequence; the logits (V,) of the token after them. before_layer: what it raises ends the
        prompt, of which the sequence then has no more than before."""

    def all_logits(
        self, sequence: CachedSequence, token_ids: Sequence[int], *, as_decoded: bool = False
    ) -> Iterator[Floats]:
        """Adds tokens to a sequence; the logits (T, V) of the token after each, chunk by chunk."""

    def decode(self, sequences: Sequence[CachedSequence], token_ids: Sequence[int]) -> Floats:
        """Adds a token to each sequence; the logits (S, V) of the tokens after them, until the next call."""

    def release(self, sequence: CachedSequence) -> None:
        """Gives the sequence's pages back."""

    @property
    def busy_seconds(self) -> float:
        """In the model's operations; the rest of the time is Python's."""


class TextEngine(ABC):
    """One model in memory. One thread at a time; several streams may be open, each with its own place in the cache."""

    missing: tuple[str, ...] = ()
    """What this engine has not, of what ktdesk's own has."""
    max_sequences: int | None = None
    """That can be computed together; None: as many as the cache holds."""
    file: GGUFFile
    tokenizer: Tokenizer
    chat_template: ChatTemplate
    recommended_sampling: SamplingConfig
    config: EngineConfig
    """With everything decided."""
    context: int
    prefill_chunk: int
    """Prompt tokens computed together."""
    _is_closed: bool = False

    @property
    def can_have_more_context(self) -> bool:
        """The model was trained for more than it has now."""
        return self.context < self.file.hparams().integer("context_length", self.context, minimum=1)

    @property
    @abstractmethod
    def runner(self) -> AnswerRunner: ...

    @property
    @abstractmethod
    def cache(self) -> PagePool: ...

    @abstractmethod
    def make_prefix_cache(self, limits: CacheLimits) -> PrefixCache:
        """Over the engine's pages, which are all free. ResourceError where the disk cannot be used."""

    def step_weight_bytes(self, num_rows: int) -> float | None:
        """That a step of decoding reads from main memory, for so many sequences; None where that is not known."""
        return None

    def token_operations(self) -> float | None:
        """On bytes, that the CPU does for a token of a prompt, attention apart; None where it computes otherwise."""
        return None

    @property
    def accelerator_name(self) -> str | None:
        """Which one; None without one."""
        return None

    def accelerator_numbers(self) -> dict[str, float]:
        """What lies on an accelerator, by name; any thread may ask. Empty without one."""
        return {}

    def close(self) -> None:
        """Ends the template's process and lets go of the file. After it, a request is a ValueError."""
        self._is_closed = True
        self.chat_template.close()
        self.file.close()

    def __enter__(self: AnyEngine) -> AnyEngine:
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
        """Log-probabilities (T, V); row t is of the token after token_ids[: t + 1].

        As if each had been decoded after the others: experts are deferred where that is asked for.
        """
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
            return np.concatenate([log_softmax(x) for x in self.runner.all_logits(sequence, ids, as_decoded=True)])
        finally:
            self.runner.release(sequence)

    def stream(self, request: Request) -> Generator[StreamEvent, None, None]:
        """Answers token by token. Closing the generator cancels, and frees what the answer held."""
        return self._events(self.answer(request))

    def answer(self, request: Request) -> Answer:
        """A new answer to a request that this model can take; nothing is computed yet. RequestError otherwise."""
        self._check_open()
        request = replace(request, token_ids=tuple(self._checked_ids(request.token_ids)))
        self._checked_ids([token_id for token_id, _ in request.sampling.logit_bias], "logit_bias")
        if len(request.token_ids) >= self.context:
            advice = "shorten the prompt" + (", or give a larger --context" if self.can_have_more_context else "")
            raise ContextOverflowError(
                f"the prompt has {len(request.token_ids)} tokens, and the context of {self.context} must hold the "
                f"answer too: {advice}"
            )
        return Answer(request, self.tokenizer, self.context)

    def _events(self, answer: Answer) -> Generator[StreamEvent, None, None]:
        sequence = CachedSequence()
        try:
            started = time.perf_counter()
            event = answer.next_event(self.runner.prefill(sequence, answer.token_ids))
            first = time.perf_counter()
            step_seconds = busy_seconds = 0.0
            while event.finish_reason is None:
                yield event
                step_started, busy_before = time.perf_counter(), self.runner.busy_seconds
                event = answer.next_event(self.runner.decode([sequence], answer.token_ids[-1:])[0])
                step_seconds += time.perf_counter() - step_started
                busy_seconds += self.runner.busy_seconds - busy_before
            timings = answer.timings(first - started, time.perf_counter() - first)
            yield replace(event, timings=replace(timings, step_seconds=step_seconds, busy_seconds=busy_seconds))
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
