"""An accelerator that is a thread of the host: all of the hybrid half but a device's own kernels runs on it.

Operations are the CPU's, computed by one thread in the order in which they were submitted, each after a delay that
can be set; memory is an account that can be full.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np

from ktdesk_engine import kernels
from ktdesk_engine.backends.accelerator import CopyWay, HostExperts
from ktdesk_engine.backends.cpu import CpuBackend
from ktdesk_engine.backends.host_experts import ExpertAreas
from ktdesk_engine.errors import AcceleratorError, AcceleratorLostError, AcceleratorMemoryError
from ktdesk_engine.kernels import (
    AttentionRule,
    Blocks,
    CachedRows,
    ExpertMlp,
    Floats,
    Ids,
    PagedContext,
    Weight,
    WorkerPool,
    streams,
)
from ktdesk_engine.kernels.handoff import HandOff, hand_over, signal, take_back, wait
from ktdesk_engine.kernels.programs import Program
from ktdesk_engine.kernels.routing import Routes, map_experts

NO_LIMIT = 2**62


class Delays(NamedTuple):
    """Seconds that operations take longer than the thread computes."""

    each: float = 0.0
    """Every operation."""
    attention: float = 0.0
    experts: float = 0.0
    """Resident experts of a layer, which the CPU's run beside."""
    expert_copy: float = 0.0
    """Copying all experts of a layer for a long prompt."""


class HostThreadAccelerator(CpuBackend):
    """Implements backends/accelerator.py. One thread at a time submits; `close` ends its thread."""

    def __init__(self, pool: WorkerPool, memory_bytes: int | None = None, delays: Delays | None = None) -> None:
        """pool: the CPU's; the thread computes with the same instruction set and the same rounding."""
        self.host_pool = pool
        super().__init__(kernels.worker_pool(1, pool.isa))
        self.name = "a thread of the host"
        self.signals_by = "the thread itself"
        self.reserved_bytes = 0
        self._delays = delays or Delays()
        self._memory_bytes = NO_LIMIT if memory_bytes is None else memory_bytes
        self._held_bytes = 0
        self._waited_seconds = 0.0
        self._is_recording = False
        self._is_lost = False
        self._hand_offs: list[HandOff] = []
        self.stages: list[HostStage] = []
        """Those that are not closed."""
        self.stream = streams.Stream(self.pool)
        self.stream.delay_ns = round(self._delays.each * 1e9)
        self._limit_stream()

    def tune(self) -> None:
        """Rounds as the CPU's pool does from now on."""
        self.pool.min_tile_rows = self.host_pool.min_tile_rows
        self.pool.min_tile_queries = self.host_pool.min_tile_queries

    @property
    def free_bytes(self) -> int:
        return self._memory_bytes - self._held_bytes - self.stream.num_bytes

    @property
    def busy_seconds(self) -> float:
        """The CPU's, and what was waited for the thread."""
        return self.host_pool.busy_seconds + self._waited_seconds

    def copy_seconds(self, num_bytes: int, way: CopyWay) -> float:
        """All ways are one here."""
        from_, to = np.ones(num_bytes, np.uint8), np.empty(num_bytes, np.uint8)
        for _ in range(2):  # the first touches the memory
            started = time.perf_counter()
            streams.copy(self.pool, from_, to)
            self.synchronize()
        return time.perf_counter() - started

    def hold(self, num_bytes: int, what: str) -> None:
        """Takes from the account, or gives back what is below 0. AcceleratorMemoryError where it is not there."""
        if num_bytes > max(self.free_bytes, 0):  # what is given back is always taken
            raise AcceleratorMemoryError(
                f"{what} take {num_bytes:,} bytes, but the accelerator ({self.name}) has {max(self.free_bytes, 0):,} "
                "free: give it fewer experts, or a shorter context"
            )
        self._held_bytes += num_bytes
        self._limit_stream()

    def shrink(self, memory_bytes: int) -> None:
        """Others take its memory: so much is left of it."""
        self._memory_bytes = memory_bytes
        self._limit_stream()

    def fail(self, message: str) -> None:
        """Submits an operation that fails, as when a device is lost."""
        streams.fail(self.pool, message)

    def lose(self) -> None:
        """From now on it is as if the device had fallen off the bus."""
        self._is_lost = True
        self.fail("it was lost")

    def program(self) -> Program:
        return _StreamProgram(self)

    @contextmanager
    def records(self) -> Iterator[None]:
        """While it lasts, uploads are the recorder's own arrays."""
        self._is_recording = True
        try:
            yield
        finally:
            self._is_recording = False

    def upload(self, ids: Ids) -> Ids:
        return ids if self._is_recording else streams.upload(self.pool, ids)

    def synchronize(self) -> None:
        started = time.perf_counter()
        try:
            self.stream.synchronize()
        except MemoryError as error:
            raise AcceleratorMemoryError(f"the accelerator ({self.name}) is out of memory") from error
        except (RuntimeError, ValueError) as error:
            raise AcceleratorError(f"the accelerator ({self.name}) failed: {error}") from error
        finally:
            self._waited_seconds += time.perf_counter() - started
            if self._is_lost:
                raise AcceleratorLostError(f"the accelerator ({self.name}) is lost: load the model anew, on the CPU")

    def cache_memory(self, *shape: int) -> Blocks:
        memory = super().cache_memory(*shape)
        self.hold(memory.nbytes, "keys and values")
        return memory

    def give_back_memory(self, memory: Blocks) -> None:
        self.hold(-memory.nbytes, "keys and values")

    def weight(self, weight: Weight) -> Weight:
        """As the CPU packs it."""
        return kernels.pack(self.host_pool, weight) if kernels.has_panels(weight) else weight

    def pin(self, hand_off: HandOff) -> None:
        """All memory is the host's."""
        self._hand_offs.append(hand_off)
        hand_off.native.fail_with(self.stream)

    def attention(
        self, queries: Floats, keys: CachedRows, values: CachedRows, context: PagedContext, rule: AttentionRule
    ) -> Floats:
        streams.pause(self.pool, self._delays.attention)
        return super().attention(queries, keys, values, context, rule)

    def hand_over(self, hand_off: HandOff, layer: int, x: Floats, routes: Routes) -> None:
        hand_over(self.pool, hand_off, layer, x, routes)

    def take_back(self, hand_off: HandOff, layer: int, x: Floats) -> Floats:
        return take_back(self.pool, hand_off, layer, x)

    def expert_slots(self, layers: Sequence[HostExperts], num_slots: int, memory: Blocks | None = None) -> HostSlots:
        return HostSlots(self, [layer.in_memory for layer in layers], num_slots, memory)

    def expert_stage(self, layers: Sequence[HostExperts]) -> HostStage:
        return HostStage(self, [layer.in_memory for layer in layers], self._delays.expert_copy)

    def resident(self, mlp: ExpertMlp, x: Floats, routes: Routes) -> Floats:
        """Experts that lie here, after their delay."""
        streams.pause(self.pool, self._delays.experts)
        return self.experts(mlp, x, *routes)

    def close(self) -> None:
        """What was submitted is done, or broken off where it waits for the CPU; then the threads end. May be called
        again, and what failed before is told no more."""
        for hand_off in self._hand_offs:
            hand_off.fail()
        self._hand_offs.clear()
        for stage in self.stages.copy():
            stage.close()
        self.stream.stop()

    def _limit_stream(self) -> None:
        self.stream.limit_bytes = max(self._memory_bytes - self._held_bytes, 0)


class _StreamProgram(Program):
    """Replayed by the thread: `replay` returns at once."""

    def __init__(self, accelerator: HostThreadAccelerator) -> None:
        super().__init__(accelerator.pool)
        self._accelerator = accelerator

    @contextmanager
    def recording(self) -> Iterator[None]:
        with self._accelerator.records(), super().recording():
            yield


class HostSlots:
    """Slots in the host's memory, on the accelerator's account."""

    def __init__(
        self,
        accelerator: HostThreadAccelerator,
        layers: Sequence[ExpertMlp],
        num_slots: int,
        memory: Blocks | None = None,
    ) -> None:
        """memory: where they lie, which is on the account already."""
        self._accelerator = accelerator
        self._layers = layers
        self._areas = ExpertAreas(layers, num_slots, memory)
        accelerator.hold(self._areas.num_bytes, f"{num_slots} experts")
        self._table = np.full((len(layers), layers[0].num_experts), -1, np.int32)

    @property
    def num_slots(self) -> int:
        return self._areas.num_slots

    @property
    def slot_bytes(self) -> int:
        return self._areas.slot_bytes

    @property
    def side_bytes(self) -> int:
        return self._areas.side_bytes

    def put(self, slot: int, layer: int, expert: int) -> None:
        for from_, to in self._areas.copies(slot, layer, expert):
            streams.copy(self._accelerator.pool, from_, to)

    def set_table(self, slot_of_expert: Ids) -> None:
        streams.overwrite(self._accelerator.pool, slot_of_expert, self._table)

    def experts(self, layer: int, x: Floats, routes: Routes) -> Floats:
        slots = map_experts(self._accelerator.pool, self._table[layer], routes)
        return self._accelerator.resident(self._areas.view(layer), x, slots)

    def close(self) -> None:
        """Gives its memory back, once nothing computes with it."""
        self._accelerator.hold(-self._areas.num_bytes, "experts")


class HostStage:
    """Two areas of all experts of a layer, filled by a second thread."""

    def __init__(self, accelerator: HostThreadAccelerator, layers: Sequence[ExpertMlp], copy_seconds: float) -> None:
        self._accelerator = accelerator
        self._copy_seconds = copy_seconds
        self._num_experts = layers[0].num_experts
        self._areas = ExpertAreas(layers, 2 * self._num_experts)
        accelerator.hold(self._areas.num_bytes, "two layers' experts for long prompts")
        self._copy_pool = kernels.worker_pool(1, accelerator.pool.isa)
        self._copy_stream = streams.Stream(self._copy_pool)
        self._loaded, self._is_free = HandOff(2, 1, 1, 1), HandOff(2, 1, 1, 1)
        for area in range(2):
            signal(self._copy_pool, self._is_free, area)
        accelerator.stages.append(self)

    def load(self, layer: int) -> None:
        area = layer % 2
        wait(self._copy_pool, self._is_free, area)
        streams.pause(self._copy_pool, self._copy_seconds)
        for expert in range(self._num_experts):
            for from_, to in self._areas.copies(area * self._num_experts + expert, layer, expert):
                streams.copy(self._copy_pool, from_, to)
        signal(self._copy_pool, self._loaded, area)

    def experts(self, layer: int, x: Floats, routes: Routes) -> Floats:
        accelerator, area = self._accelerator, layer % 2
        slots = np.arange(self._num_experts, dtype=np.int32) + area * self._num_experts
        wait(accelerator.pool, self._loaded, area)
        routes = map_experts(accelerator.pool, slots, routes)
        out = accelerator.resident(self._areas.view(layer), x, routes)
        signal(accelerator.pool, self._is_free, area)
        return out

    def fail(self) -> None:
        self._loaded.fail()
        self._is_free.fail()

    def close(self) -> None:
        """Gives its memory back, once nothing computes with it, and ends its thread. May be called again."""
        if self not in self._accelerator.stages:
            return
        self._accelerator.stages.remove(self)
        self.fail()
        self._copy_stream.stop()
        self._accelerator.hold(-self._areas.num_bytes, "experts")
