"""A loaded model that answers: `Engine.load`, then `stream`, or `score`.

with Engine.load("model.gguf") as engine:
    for event in engine.stream(Request(engine.chat_ids([{"role": "user", "content": "Hello"}]))):
        print(event.text, end="")
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy.typing as npt

from ktdesk_engine import kernels
from ktdesk_engine.accelerators import open_accelerator
from ktdesk_engine.backends.cpu import CpuBackend
from ktdesk_engine.benchmark.model_weights import model_weights
from ktdesk_engine.calibration import find_min_tile_rows, typical_experts
from ktdesk_engine.chat.template import ChatTemplate
from ktdesk_engine.compute import decide_compute, fixed_min_tile_rows, min_tile_queries, rounds_to_bfloat16
from ktdesk_engine.config import Compute, EngineConfig
from ktdesk_engine.errors import ConfigError, ModelFileError
from ktdesk_engine.expert_half import ExpertHalf, shares_memory
from ktdesk_engine.fewer_experts import use_fewer_experts
from ktdesk_engine.gguf.file import GGUFFile
from ktdesk_engine.kernels import WorkerPool
from ktdesk_engine.kernels.pools import NEVER
from ktdesk_engine.kv_cache import PAGE_SIZE, CachedSequence, KVCache
from ktdesk_engine.load_progress import LoadProgress
from ktdesk_engine.machine import available_memory_bytes, thread_places
from ktdesk_engine.memory import decide_cache_type, decide_context
from ktdesk_engine.models.registry import family_of
from ktdesk_engine.packing import check_memory, load_weights, packed_model_bytes
from ktdesk_engine.prefill_chunk import ON_TILES, ExpertSizes, decide_prefill_chunk
from ktdesk_engine.prefix_cache.cache import PrefixCache
from ktdesk_engine.prefix_cache.disk_store import DiskStore
from ktdesk_engine.prefix_cache.fingerprint import model_fingerprint
from ktdesk_engine.prefix_cache.limits import CacheLimits
from ktdesk_engine.prefix_cache.page_folder import name_model
from ktdesk_engine.runner import Runner
from ktdesk_engine.shared_cache import SharedKVCache
from ktdesk_engine.text_engine import TextEngine, recommended_sampling
from ktdesk_engine.tokenizer.tokenizer import Tokenizer

STEPS_TO_MEASURE = 6
"""For a choice that a measurement makes; the first, which records, does not count."""


class Engine(TextEngine):
    """A model that the kernels compute."""

    def __init__(
        self, file: GGUFFile, config: EngineConfig, progress: Callable[[LoadProgress], None] = lambda progress: None
    ) -> None:
        if config.engine == "llamacpp":
            raise ConfigError("engine must be auto or ktdesk here: this is about ktdesk's own kernels")
        self.file = file
        if config.experts_used is not None:
            use_fewer_experts(file, config.experts_used)
        places = thread_places(config.num_threads, config.pinning, config.num_nodes)
        self.pool = kernels.worker_pool(len(places), config.isa, places)
        self.accelerator = open_accelerator(config.accelerator, self.pool, config.accelerator_bytes)
        try:
            self._prepare(config, progress)
        except BaseException:
            if self.accelerator is not None:
                self.accelerator.close()
            raise

    def _prepare(self, config: EngineConfig, progress: Callable[[LoadProgress], None]) -> None:
        """Loads the weights, and makes what computes with them."""
        file, pool = self.file, self.pool
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
        pool.rounds_to_bfloat16 = rounds_to_bfloat16(compute)
        pool.min_tile_queries = min_tile_queries(compute, deterministic=config.deterministic)
        panel_bytes = packed_model_bytes(self.model.packables) if compute != "float32" else 0
        available_bytes = available_memory_bytes()
        check_memory(panel_bytes, available_bytes)
        cache_type = decide_cache_type(config.cache_type, compute)
        self.config = replace(
            config,
            engine="ktdesk",
            compute=compute,
            min_tile_rows=config.min_tile_rows if compute == "mixed" else None,
            prefill_chunk=self._decide_prefill_chunk(config, compute, available_bytes - panel_bytes),
            num_threads=pool.num_threads,
            isa=pool.isa,
            cache_type=cache_type,
            context=decide_context(
                config.context, self.model, available_bytes - panel_bytes, cache_type, config.num_sequences
            ),
        )
        assert self.config.context is not None
        assert self.config.prefill_chunk is not None
        self.context, self.prefill_chunk = self.config.context, self.config.prefill_chunk
        self._cache = self._new_cache()
        experts_in_file = [layer.experts for layer in self.model.moe_layers]
        packables = self.model.packables if self.accelerator is None else self.model.moe_layers
        load_weights(packables, self.model.tensor_names, pool, file, progress, packs=compute != "float32")
        if self.accelerator is not None and compute != "float32":
            for layer in self.model.packables:
                if layer not in packables:
                    layer.pack(self.accelerator.weight)
        pool.min_tile_rows = self._decide_min_tile_rows(pool)
        if compute == "mixed":
            self.config = replace(self.config, min_tile_rows=pool.min_tile_rows)
        if self.accelerator is not None:
            self.accelerator.tune()
        self.experts = ExpertHalf(self.model, self.config, pool, self.accelerator, experts_in_file, self._cache)
        self._runner = Runner(
            self.model,
            self._cache,
            self.prefill_chunk,
            self.tokenizer.vocab_size,
            use_programs=config.program,
            upkeep=self.experts,
        )
        self._weights = model_weights(file, self.model)
        if config.defer == "auto":
            self.config = replace(self.config, defer=self.experts.decide_deferral(self._step_seconds))

    def _new_cache(self) -> KVCache:
        """Beside an accelerator's experts it may have no memory yet; that there is enough is seen now."""
        config, device = self.config, self.model.backend
        assert config.cache_type is not None
        settings = (self.model.cache_shapes, self.context, config.cache_type, config.num_sequences)
        if self.accelerator is None or not shares_memory(config, self.model):
            return KVCache(*settings, device)
        cache = SharedKVCache(*settings, device)
        if cache.num_bytes > self.accelerator.free_bytes:
            device.cache_memory(cache.num_bytes)  # which says what is missing
        return cache

    def _decide_prefill_chunk(self, config: EngineConfig, compute: Compute, left_bytes: int) -> int:
        experts = None
        on_tiles = self.pool.has_tiles and compute in ON_TILES
        if self.model.moe_layers and on_tiles and self.accelerator is None:
            layer = self.model.moe_layers[0]
            width = layer.experts.gate.weight.num_rows
            experts = ExpertSizes(layer.rule.num_experts, layer.rule.num_used, layer.hidden, width)
        return decide_prefill_chunk(config.prefill_chunk, experts, left_bytes)

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

    def step_weight_bytes(self, num_rows: int) -> float | None:
        """Several sequences may share experts: what they read is known of dense models alone."""
        weights = self._weights
        if self.accelerator is not None or (num_rows > 1 and weights.num_experts):
            return None
        bytes_ = weights.memory_bytes
        return weights.of_token(bytes_) + (num_rows - 1) * bytes_.embedding_row

    def token_operations(self) -> float | None:
        on_bytes = self.accelerator is None and self._weights.peak == "int8"
        return self._weights.operations(1, 0) if on_bytes else None

    @property
    def accelerator_name(self) -> str | None:
        return None if self.accelerator is None else self.accelerator.name

    def accelerator_numbers(self) -> dict[str, float]:
        """Bytes of cache and experts are those that each has now, filled or not."""
        if self.accelerator is None:
            return {}
        experts, cache = self.experts, self._cache
        numbers = {
            "resident_experts": float(experts.num_resident),
            "expert_bytes": experts.num_slots * experts.slot_bytes,
            "cache_bytes": cache.num_bytes,
        }
        if (sharing := experts.sharing) is not None:
            numbers |= {
                "shared_bytes": sharing.num_bytes,
                "cache_bytes": sharing.num_places * cache.page_bytes,
                "expert_slots": sharing.num_slots,
                "cache_places": sharing.num_places,
                "places_lent_total": sharing.num_places_lent,
                "places_returned_total": sharing.num_places_returned,
                "experts_left_total": sharing.num_experts_left,
            }
        return numbers

    def close(self) -> None:
        try:
            if self.accelerator is not None:
                self.accelerator.close()
        finally:
            super().close()

    @property
    def runner(self) -> Runner:
        return self._runner

    @property
    def cache(self) -> KVCache:
        return self._cache

    def resize_experts(self, num_bytes: int) -> None:
        """Between steps: so much of the accelerator's memory is for experts. ConfigError without one."""
        try:
            self.experts.resize(num_bytes)
        finally:
            self._runner.forget_programs()

    def restore_use(self, rates: npt.ArrayLike) -> None:
        """Before any step: what `experts.use` counted at another time; experts on an accelerator follow it.

        ConfigError where it is another model's.
        """
        if self.experts.use is None:
            raise ConfigError("this model has no experts whose use is counted")
        self.experts.use.restore(rates)
        if self.accelerator is not None:
            try:
                self.experts.place()
            finally:
                self._runner.forget_programs()

    def make_prefix_cache(self, limits: CacheLimits) -> PrefixCache:
        prefixes = self._prefix_cache(limits)
        if isinstance(self._cache, SharedKVCache):
            self._cache.spare = prefixes
        return prefixes

    def _prefix_cache(self, limits: CacheLimits) -> PrefixCache:
        if not limits.disk_bytes or limits.disk_folder is None:
            return PrefixCache(self.cache, limits.ram_bytes)
        fingerprint = model_fingerprint(self.file, self.config, PAGE_SIZE, self.cache.page_bytes)
        disk = DiskStore(limits.disk_folder, fingerprint, limits.disk_bytes)
        name_model(limits.disk_folder, fingerprint, self.file.path.name)
        return PrefixCache(self.cache, limits.ram_bytes, disk, fingerprint)
