"""A loaded model that answers: `Engine.load`, then `stream`, or `score`.

with Engine.load("model.gguf") as engine:
    for event in engine.stream(Request(engine.chat_ids([{"role": "user", "content": "Hello"}]))):
        print(event.text, end="")
"""

from __future__ import annotations

import operator
import statistics
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ktdesk_engine import kernels
from ktdesk_engine.accelerators import open_accelerator
from ktdesk_engine.answer import Answer, StreamEvent
from ktdesk_engine.backends.cpu import CpuBackend
from ktdesk_engine.calibration import find_min_tile_rows, typical_experts
from ktdesk_engine.chat.template import ChatTemplate
from ktdesk_engine.compute import attends_on_tiles, decide_compute, fixed_min_tile_rows
from ktdesk_engine.config import EngineConfig, Request, SamplingConfig, is_sequence
from ktdesk_engine.errors import ConfigError, ContextOverflowError, ModelFileError, RequestError
from ktdesk_engine.expert_half import ExpertHalf
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
from ktdesk_engine.sampler import log_softmax
from ktdesk_engine.tokenizer.tokenizer import Tokenizer

STEPS_TO_MEASURE = 6
"""For a choice that a measurement makes; the first, which records, does not count."""


class Engine:
    """One model in memory. One thread at a time; several streams may be open, each with its own place in the cache."""

    def __init__(
        self, file: GGUFFile, config: EngineConfig, progress: Callable[[LoadProgress], None] = lambda progress: None
    ) -> None:
        self.file = file
        self._is_closed = False
        places = thread_places(config.num_threads, config.pinning, config.num_nodes)
        self.pool = pool = kernels.worker_pool(len(places), config.isa, places)
        self.accelerator = open_accelerator(config.accelerator, pool, config.accelerator_bytes)
        self.model = family_of(file)(file, self.accelerator or CpuBackend(pool))
        self.tokenizer = Tokenizer.from_gguf(file)
        if self.tokenizer.vocab_size > self.model.vocab_size:
            raise ModelFileError(
                file.path,
                f"there are {self.tokenizer.vocab_size} tokens, but {self.model.vocab_size} rows in the embedding",
            )
        self.chat_template = ChatTemplate.from_gguf(file)
        self.recommended_sampling = recommended_sampling(file.path, file.keys)
        compute = decide_compute(config.compute, pool, deterministic=config.deterministic)
        pool.attends_on_tiles = attends_on_tiles(compute, deterministic=config.deterministic)
        panel_bytes = packed_model_bytes(self.model.packables) if compute != "float32" else 0
        available_bytes = available_memory_bytes()
        check_memory(panel_bytes, available_bytes)
        cache_type = decide_cache_type(config.cache_type, compute)
        self.config = replace(
            config,
            compute=compute,
            min_tile_rows=config.min_tile_rows if compute == "mixed" else None,
            num_threads=pool.num_threads,
            isa=pool.isa,
            cache_type=cache_type,
            context=decide_context(
                config.context, self.model, available_bytes - panel_bytes, cache_type, config.num_sequences
            ),
        )
        """With everything decided."""
        assert self.config.context is not None
        self.context: int = self.config.context
        self.cache = KVCache(
            self.model.cache_shapes, self.context, cache_type, config.num_sequences, self.model.backend.cache_memory
        )
        experts_in_file = [layer.experts for layer in self.model.moe_layers]
        load_weights(self.model.packables, self.model.tensor_names, pool, file, progress, packs=compute != "float32")
        pool.min_tile_rows = self._decide_min_tile_rows(pool)
        if compute == "mixed":
            self.config = replace(self.config, min_tile_rows=pool.min_tile_rows)
        if self.accelerator is not None:
            self.accelerator.tune()
        self.experts = ExpertHalf(self.model, self.config, pool, self.accelerator, experts_in_file)
        self.runner = Runner(
            self.model,
            self.cache,
            config.prefill_chunk,
            self.tokenizer.vocab_size,
            use_programs=config.program,
            upkeep=self.experts,
        )
        if config.defer == "auto":
            self.config = replace(self.config, defer=self.experts.decide_deferral(self._step_seconds))

    def _decide_min_tile_rows(self, pool: WorkerPool) -> int:
        fixed = fixed_min_tile_rows(self.config.compute, self.config.min_tile_rows, pool)
        if fixed is not None:
            return fixed
        experts = typical_experts(self.model.packables)
        return NEVER if experts is None else find_min_tile_rows(pool, experts)

    def _step_seconds(self) -> float:
        """Of a decode step: the median of a few."""
        sequence = CachedSequence()
        try:
            seconds = []
            for _ in range(STEPS_TO_MEASURE):
                started = time.perf_counter()
                self.runner.decode([sequence], [0])
                seconds.append(time.perf_counter() - started)
            return statistics.median(seconds[1:])
        finally:
            self.runner.release(sequence)

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
        if self.accelerator is not None:
            self.accelerator.close()
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
            raise ContextOverflowError(
                f"the prompt has {len(request.token_ids)} tokens, and the context of {self.context} must hold the "
                "answer too: shorten the prompt, or start with a larger context"
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
