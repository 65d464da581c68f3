"""A model that llama.cpp computes, with the requests, the sampling, the templates and the pages of every engine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from ktdesk_engine.chat.template import ChatTemplate
from ktdesk_engine.config import EngineConfig
from ktdesk_engine.errors import ModelFileError, ResourceError
from ktdesk_engine.gguf.file import GGUFFile
from ktdesk_engine.kv_cache import PAGE_SIZE, LayerCacheShape, cache_bytes
from ktdesk_engine.llamacpp.library import MAX_SEQUENCES, ContextSettings, LlamaContext, LlamaModel
from ktdesk_engine.llamacpp.own_settings import refuse_own_settings
from ktdesk_engine.llamacpp.pages import LlamaPages
from ktdesk_engine.llamacpp.prefixes import LlamaPrefixCache
from ktdesk_engine.llamacpp.runner import LlamaRunner
from ktdesk_engine.llamacpp.text_model import tokenizer_of
from ktdesk_engine.load_progress import LoadMeter, LoadProgress
from ktdesk_engine.machine import available_memory_bytes, thread_places
from ktdesk_engine.memory import decide_cache_type, decide_context
from ktdesk_engine.prefill_chunk import decide_prefill_chunk
from ktdesk_engine.prefix_cache.cache import PrefixCache
from ktdesk_engine.prefix_cache.limits import CacheLimits
from ktdesk_engine.text_engine import TextEngine, recommended_sampling

MAX_RUNNING = 32
"""Requests at the same time. For each of them there is memory for logits."""
MAX_STATES = 16
"""Of models with states: each has memory from the start."""
MISSING = ("the packed weights and tiles of ktdesk's own kernels", "prefixes in host memory and on disk")
MISSING_WITH_STATES = (MISSING[0], "shared prefixes")


@dataclass(frozen=True)
class CachedLayers:
    """What is kept of a token, by the keys that most architectures have."""

    context_length: int
    cache_shapes: list[LayerCacheShape]


class LlamaCppEngine(TextEngine):
    """The engine for models that ours does not know."""

    def __init__(
        self, file: GGUFFile, config: EngineConfig, progress: Callable[[LoadProgress], None] = lambda progress: None
    ) -> None:
        refuse_own_settings(config)
        self.file = file
        self.tokenizer = tokenizer_of(file)
        self.chat_template = ChatTemplate.from_gguf(file)
        self.recommended_sampling = recommended_sampling(file.path, file.keys)
        num_bytes = sum(shard.stat().st_size for shard in file.shards)
        available_bytes = available_memory_bytes()
        if num_bytes > available_bytes:
            raise ResourceError(
                f"the model needs {num_bytes / 2**30:.1f} GiB in memory, but {available_bytes / 2**30:.1f} GiB are "
                "available: close something, or take a smaller model"
            )
        self._model = LlamaModel(file.shards[0], progress=_shown(progress, num_bytes))
        try:
            self._prepare(config, available_bytes - num_bytes)
        except BaseException:
            self._model.close()
            raise

    def _prepare(self, config: EngineConfig, available_bytes: int) -> None:
        model = self._model
        if self.tokenizer.vocab_size != model.vocab_size:
            raise ModelFileError(
                self.file.path, f"there are {self.tokenizer.vocab_size} tokens, but llama.cpp has {model.vocab_size}"
            )
        layers = cached_layers(self.file, model.context_length)
        cache_type = decide_cache_type(config.cache_type, "auto")
        context = decide_context(config.context, layers, available_bytes, cache_type, config.num_sequences)
        num_threads = len(thread_places(config.num_threads))
        self.prefill_chunk = decide_prefill_chunk(config.prefill_chunk, None, 0)
        self.config = replace(
            config,
            engine="llamacpp",
            num_threads=num_threads,
            cache_type=cache_type,
            context=context,
            prefill_chunk=self.prefill_chunk,
        )
        self.context = context
        self.max_sequences = MAX_STATES if model.has_states else MAX_RUNNING
        self.missing = MISSING_WITH_STATES if model.has_states else MISSING
        num_pages = config.num_sequences * -(-context // PAGE_SIZE)
        settings = ContextSettings(
            num_cells=num_pages * PAGE_SIZE,
            cache_type=cache_type,
            num_threads=num_threads,
            largest_batch=max(self.prefill_chunk, MAX_RUNNING),
            max_running=self.max_sequences,
        )
        self._llama = LlamaContext(model, settings, model.vocab_size)
        holders = range(0) if model.has_states else range(self.max_sequences, MAX_SEQUENCES)
        self._pages = LlamaPages(
            self._llama, num_pages, max(1, cache_bytes(layers.cache_shapes, PAGE_SIZE, cache_type)), holders
        )
        self._runner = LlamaRunner(self._llama, self._pages, range(self.max_sequences), context, self.prefill_chunk)

    @classmethod
    def load(
        cls,
        path: str | Path,
        config: EngineConfig | None = None,
        progress: Callable[[LoadProgress], None] = lambda progress: None,
    ) -> LlamaCppEngine:
        """Maps the model and looks at all its weights. progress may raise, to cancel."""
        file = GGUFFile.open(path)
        try:
            return cls(file, config or EngineConfig(), progress)
        except BaseException:
            file.close()
            raise

    def close(self) -> None:
        if not self._is_closed:
            super().close()
            self._llama.close()
            self._model.close()

    @property
    def runner(self) -> LlamaRunner:
        return self._runner

    @property
    def cache(self) -> LlamaPages:
        return self._pages

    def make_prefix_cache(self, limits: CacheLimits) -> PrefixCache:
        """In memory alone, whatever the limits."""
        return LlamaPrefixCache(self._pages)


def cached_layers(file: GGUFFile, context_length: int) -> CachedLayers:
    """What keys leave open is guessed as they are in most models; an upper bound where layers have windows."""
    keys = file.hparams()
    num_layers = keys.integer("block_count", minimum=1)
    heads = keys.per_layer("attention.head_count", num_layers, 1, minimum=0)
    kv_heads = keys.per_layer("attention.head_count_kv", num_layers, max(heads), minimum=0)
    length = keys.integer("embedding_length", 64, minimum=1) // max(1, *heads)
    key_length = keys.integer("attention.key_length", length, minimum=1)
    value_length = keys.integer("attention.value_length", length, minimum=1)
    return CachedLayers(context_length, [LayerCacheShape(count, key_length, value_length) for count in kv_heads])


def _shown(progress: Callable[[LoadProgress], None], total_bytes: int) -> Callable[[float], None]:
    """Shares as progress of ours."""
    meter = LoadMeter(total_bytes, progress)
    done_bytes = 0

    def show(share: float) -> None:
        nonlocal done_bytes
        reached = max(done_bytes, int(share * total_bytes))
        meter.advance("checking", reached - done_bytes)
        done_bytes = reached

    return show
