"""Who computes the experts of one engine: the CPU alone, or with an accelerator; with deferral, or without.

Attached to a model once its weights are loaded. Between steps it moves experts to where traffic wants them, and where
the accelerator runs out of memory it gives that of experts back.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np

from ktdesk_engine.backends.accelerator import Accelerator, HostExperts
from ktdesk_engine.backends.backend import Recorder
from ktdesk_engine.backends.cpu import CpuBackend
from ktdesk_engine.backends.host_experts import expert_bytes
from ktdesk_engine.config import EngineConfig
from ktdesk_engine.errors import AcceleratorMemoryError, ConfigError
from ktdesk_engine.experts.deferral import CpuDeferral, check_deferred, deferral_cell, fewest_that_hide, max_deferred
from ktdesk_engine.experts.hybrid import NO_PASSING, HybridExperts
from ktdesk_engine.experts.own_slots import OwnSlots
from ktdesk_engine.experts.residency import SlotSize
from ktdesk_engine.experts.streaming import StreamedExperts
from ktdesk_engine.experts.use import ExpertUse
from ktdesk_engine.kernels import ExpertMlp, WorkerPool
from ktdesk_engine.kv_cache import PAGE_SIZE, KVCache
from ktdesk_engine.memory_sharing import MemorySharing, Residents, SharingStats
from ktdesk_engine.models.base import Decoder
from ktdesk_engine.placement import Mask, choose_residents, forced_experts, has_room_to_pass, work_bytes
from ktdesk_engine.placement_rules import apply_rules
from ktdesk_engine.shared_cache import SharedKVCache

log = logging.getLogger("ktdesk.engine")

TOKENS_BETWEEN_MOVES = 32
"""Steps after which traffic is looked at anew."""
MAX_DECODED = 512
"""Sequences of one decode step on an accelerator."""
WORTH_MOVING = 1.25
"""Who comes is used so much more than who leaves: two that are used alike do not take turns."""

InFile = Sequence[ExpertMlp]


def shares_memory(config: EngineConfig, model: Decoder) -> bool:
    """Whether experts and cache have one budget. A number of experts that was asked for is kept; so are experts where
    they may not move."""
    can_move = config.accelerator is not None and bool(model.moe_layers) and config.move_ms > 0
    return can_move and config.share_memory and config.accelerator_experts is None


class SlotMemory(Protocol):
    """What resident experts have of the accelerator's memory."""

    def begin(self) -> None:
        """Takes it, and fills it."""

    def refill(self) -> None:
        """With who should be resident now. What was recorded before is void."""

    def resize(self, num_bytes: int) -> None:
        """So much, or what there is of it; the rest is free for others. What was recorded before is void."""

    def halve(self) -> bool:
        """Half of it is free for others; False where nothing can be. What was recorded before is void."""

    def look(self) -> None:
        """Now and then."""


class ExpertHalf:
    """One model's routed experts. Called between steps only."""

    def __init__(
        self,
        model: Decoder,
        config: EngineConfig,
        pool: WorkerPool,
        accelerator: Accelerator | None,
        in_file: InFile,
        cache: KVCache,
    ) -> None:
        """in_file: the experts of each layer before they were packed. cache: a shared one gets its memory here.
        ConfigError where the model has not what config asks for."""
        self._layers = model.moe_layers
        assert config.prefill_chunk is not None  # decided
        self._config, self._prefill_chunk = config, config.prefill_chunk
        self._refuse_too_much()
        self._num_deferred = deferral_cell(0 if config.defer == "auto" else config.defer)
        self._steps_left = TOKENS_BETWEEN_MOVES
        self._hybrid: HybridExperts | None = None
        self._memory: SlotMemory | None = None
        self.use: ExpertUse | None = None
        self.blocks = _expert_blocks(model)
        """The N of `blk.N.` of each layer with experts."""
        self.slot_bytes = max(map(expert_bytes, in_file), default=0)
        """Of one expert on the accelerator; without one, about what it would take there."""
        if accelerator is not None:
            self._rules = apply_rules(config.placement_rules, sorted(model.tensor_names), self.blocks)
        if not self._layers:
            self._refuse_experts()
            return
        self.use = ExpertUse.of(self._layers)
        if accelerator is None:
            self.use.by_routers(self._layers)
            if self.num_deferred:
                CpuDeferral(model.backend, self._layers, self._num_deferred)
            return
        self._accelerator = accelerator
        experts = [HostExperts(raw, layer.experts) for raw, layer in zip(in_file, self._layers, strict=True)]
        self._slot = _slot_size(accelerator, experts)
        self.slot_bytes = self._slot.num_bytes
        self._hybrid = HybridExperts(
            accelerator,
            CpuBackend(pool),
            self._layers,
            experts,
            self.use,
            self._num_deferred,
            max(self._prefill_chunk, MAX_DECODED),
            self._streamed(experts, cache),
        )
        model.recorder = self._recorder
        self._memory = self._slot_memory(self._hybrid, cache)
        self._memory.begin()

    @property
    def num_deferred(self) -> int:
        return int(self._num_deferred[0])

    @property
    def num_resident(self) -> int:
        """Experts on the accelerator, of all layers."""
        return 0 if self._hybrid is None else self._hybrid.residency.num_resident

    @property
    def num_slots(self) -> int:
        """For experts on the accelerator, filled or not."""
        return 0 if self._hybrid is None else self._hybrid.residency.num_slots

    @property
    def resident_mask(self) -> Mask | None:
        """(L, E); None without an accelerator."""
        return None if self._hybrid is None else self._hybrid.residency.mask

    @property
    def fixed_layers(self) -> tuple[int, ...]:
        """Counted over those with experts: where their experts lie, rules say, and no use moves them."""
        return () if self._hybrid is None else (*self._rules.forced, *self._rules.forbidden)

    @property
    def sharing(self) -> SharingStats | None:
        """None where experts and cache have no budget together."""
        return self._memory.stats if isinstance(self._memory, MemorySharing) else None

    def place(self) -> None:
        """Fills the slots anew. What was recorded before is void."""
        assert self._memory is not None
        self._memory.refill()

    def resize(self, num_bytes: int) -> None:
        """Gives experts so much of the accelerator's memory, or what there is of it; the rest is free for others. What
        was recorded before is void."""
        if self._hybrid is None or self._memory is None:
            raise ConfigError("there is no accelerator whose experts could have more memory or less")
        self._hybrid.settle()
        self._memory.resize(num_bytes)

    @property
    def prompt_break_even(self) -> float | None:
        """From how many tokens on a prompt's experts pass through the accelerator; None: it was not found yet."""
        streamed = None if self._hybrid is None else self._hybrid.streamed
        return None if streamed is None else streamed.break_even.num_tokens

    def decide_deferral(self, step_seconds: Callable[[], float]) -> int:
        """What `auto` is: the fewest that hide the CPU. step_seconds: measures a decode step, which does not count as
        use."""
        if self._hybrid is None or self.use is None:
            return 0
        seconds = []
        for num_deferred in range(max_deferred(self._layers[0].rule.num_used) + 1):
            self._num_deferred[0] = num_deferred
            seconds.append(step_seconds())
        self._num_deferred[0] = fewest_that_hide(seconds)
        self.use.restore(np.zeros(self.use.counts.shape))
        return self.num_deferred

    def prepare(self) -> None:
        """Before anything of a step is submitted: takes away what one that was broken off has left."""
        if self._hybrid is not None:
            self._hybrid.prepare()
        if isinstance(self._memory, MemorySharing):
            self._memory.restore()

    def between_steps(self) -> None:
        """Now and then moves experts toward what is used, for config.move_ms at most."""
        if self._memory is None or not self._config.move_ms:
            return
        self._steps_left -= 1
        if self._steps_left <= 0:
            self._steps_left = TOKENS_BETWEEN_MOVES
            self._memory.look()
            self._move()

    def make_room(self) -> bool:
        """Gives up what long prompts need, then half of the resident experts; False where there is nothing. What was
        recorded is void."""
        if self._hybrid is None or self._memory is None:
            return False
        self._hybrid.settle()
        if self._hybrid.streamed is not None:
            log.warning("the accelerator is out of memory: prompts no longer pass through it")
            self._hybrid.streamed.close()
            self._hybrid.streamed = None
            return True
        if not self._memory.halve():
            return False
        log.warning("the accelerator is out of memory: experts move to the CPU, %d stay", self.num_resident)
        return True

    def _slot_memory(self, hybrid: HybridExperts, cache: KVCache) -> SlotMemory:
        """A shared cache keeps places for a piece of a prompt of each sequence."""
        assert self.use is not None
        config, residency = self._config, hybrid.residency
        first, num_tokens = self._layers[0], min(self._prefill_chunk, config.context or self._prefill_chunk)
        width = first.experts.gate.weight.num_rows
        work = self._accelerator.reserved_bytes + work_bytes(num_tokens, first.hidden, width, first.rule.num_used)
        if not isinstance(cache, SharedKVCache):
            wish = config.accelerator_experts
            return OwnSlots(self._accelerator, residency, self._slot, self._wanted, wish, work)
        forced = forced_experts(self.use.counts.shape, self._rules)
        residents = Residents(self._wanted, self.use.seen, forced, config.move_ms / 1e3)
        floor = config.num_sequences * (self._prefill_chunk // PAGE_SIZE + 1)
        return MemorySharing(self._accelerator, residency, cache, self._slot, residents, work, floor, hybrid.prepare)

    def _streamed(self, experts: Sequence[HostExperts], cache: KVCache) -> StreamedExperts | None:
        """Beside the cache, which may not have its memory yet."""
        to_come = cache.num_bytes if isinstance(cache, SharedKVCache) else 0
        stage_bytes = 2 * experts[0].in_memory.num_experts * self._slot.num_bytes
        free_bytes = self._accelerator.free_bytes - to_come
        if not self._config.stream_prompts or not has_room_to_pass(stage_bytes, free_bytes):
            return None
        try:
            return StreamedExperts(lambda: self._accelerator.expert_stage(experts), len(experts))
        except (AcceleratorMemoryError, MemoryError) as error:  # others took it meanwhile
            log.warning("%s; %s", error, NO_PASSING)
            return None

    def _recorder(self) -> Recorder:
        assert self._hybrid is not None
        return self._hybrid.program()

    def _wanted(self, num_slots: int) -> Mask:
        assert self.use is not None
        return choose_residents(self._config.placement, self.use.rates(), num_slots, self._rules)

    def _move(self) -> None:
        assert self._hybrid is not None
        assert self.use is not None
        residency, rates = self._hybrid.residency, self.use.rates()
        favoured = rates * (WORTH_MOVING * residency.mask + ~residency.mask)
        wanted = choose_residents("frequency", favoured, residency.num_slots, self._rules)
        residency.move(wanted, rates, self._config.move_ms / 1e3)

    def _refuse_experts(self) -> None:
        """ConfigError where something is asked for of experts alone."""
        if self._config.accelerator_experts:
            raise ConfigError(f"accelerator_experts {self._config.accelerator_experts}: this model has no experts")

    def _refuse_too_much(self) -> None:
        if self._config.defer != "auto":
            check_deferred(self._config.defer, self._layers[0].rule.num_used if self._layers else 0)


def _slot_size(accelerator: Accelerator, experts: Sequence[HostExperts]) -> SlotSize:
    """A device lays experts out in its own way: one slot tells. Without room for one it does not matter."""
    try:
        slots = accelerator.expert_slots(experts, 1)
    except (AcceleratorMemoryError, MemoryError):
        return SlotSize(max(expert_bytes(layer.in_memory) for layer in experts), 0)
    slots.close()
    return SlotSize(slots.slot_bytes, slots.side_bytes)


def _expert_blocks(model: Decoder) -> list[int]:
    """The N of `blk.N.` of each layer with experts."""
    names = (name.split(".") for name in model.tensor_names if "ffn_down_exps.weight" in name)
    return sorted(int(parts[1]) for parts in names)
