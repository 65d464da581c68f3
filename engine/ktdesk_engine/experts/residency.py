"""Which experts lie on the accelerator now: slots, the tables that say which, and moves between tokens."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from ktdesk_engine.backends.accelerator import Accelerator, ExpertSlots, HostExperts
from ktdesk_engine.errors import AcceleratorError
from ktdesk_engine.kernels import Blocks, Ids
from ktdesk_engine.placement import Mask, Rates, moves_toward


class SlotSize(NamedTuple):
    num_bytes: int
    side_bytes: int
    """Of what each slot needs besides, elsewhere."""


class Residency:
    """Slots of one pool over all layers. Call it between steps; what it changes counts from the next step on."""

    def __init__(self, accelerator: Accelerator, layers: Sequence[HostExperts]) -> None:
        self._accelerator = accelerator
        self._layers = layers
        self._experts_per_layer = layers[0].in_memory.num_experts
        self.num_experts = len(layers) * self._experts_per_layer
        """Of all layers."""
        self.slot_of_expert: Ids = np.full((len(layers), self._experts_per_layer), -1, np.int32)
        """(L, E), read by the CPU in each step: it stays in its place."""
        self.slots: ExpertSlots | None = None
        """None: all experts are the CPU's."""
        self.num_slots = 0
        """The first of them, that may be used now."""
        self._copy_seconds: float | None = None
        """Of one expert: the longest that was seen lately."""

    @property
    def mask(self) -> Mask:
        """(L, E): those on the accelerator."""
        return self.slot_of_expert >= 0

    @property
    def num_resident(self) -> int:
        return int(self.mask.sum())

    def fill(self, wanted: Mask) -> None:
        """Slots for just these, with new addresses: what was recorded before is void. AcceleratorMemoryError, and none
        is resident, where they do not fit."""
        self.clear()
        if not wanted.any():
            return
        self.slots = self._accelerator.expert_slots(self._layers, int(wanted.sum()))
        self.num_slots = self.slots.num_slots
        self.occupy(wanted)

    def lie_in(self, memory: Blocks, max_slots: int, num_slots: int, wanted: Mask) -> None:
        """As `fill`, in memory with room for max_slots, of which so many may be used now."""
        self.clear()
        if max_slots:
            self.slots = self._accelerator.expert_slots(self._layers, max_slots, memory)
            self.num_slots = num_slots
            self.occupy(wanted)

    def occupy(self, wanted: Mask) -> None:
        """Just these, into the slots that there are."""
        if self.slots is None:
            return
        self.slot_of_expert[:] = -1
        self._copy(enumerate(np.flatnonzero(wanted).tolist()))

    def clear(self) -> None:
        """All experts are the CPU's; what was recorded before is void."""
        self.slot_of_expert[:] = -1
        self.num_slots = 0
        slots, self.slots = self.slots, None
        if slots is not None:
            slots.close()

    def shrink(self, num_slots: int, forced: Mask, rates: Rates, stall_seconds: float) -> int:
        """Only the first slots may be used from now on; returns how many experts left.

        The coldest leave, but for those that are forced. Who stays and lies beyond moves, the hottest first, as far as
        the time allows; else he leaves as well.
        """
        if self.slots is None:
            return 0
        before, flat = self.num_resident, self.slot_of_expert.reshape(-1)
        residents = np.flatnonzero(flat >= 0)
        heat = np.where(forced, np.inf, rates).reshape(-1)[residents]
        by_heat = residents[np.argsort(-heat, kind="stable")]
        flat[by_heat[num_slots:]] = -1
        self.num_slots = num_slots
        beyond = [int(expert) for expert in by_heat[:num_slots] if flat[expert] >= num_slots]
        flat[beyond] = -1
        num_moves = max(self._max_moves(stall_seconds), int(forced.reshape(-1)[beyond].sum()))
        self._put(zip(self._free_slots(), beyond[:num_moves], strict=False))
        return before - self.num_resident

    def move(self, wanted: Mask, rates: Rates, stall_seconds: float) -> int:
        """Exchanges experts in place toward `wanted`, for about so long at most; returns how many came.

        Free slots are filled first. Without a measurement it moves one, and so gets one.
        """
        if self.slots is None:
            return 0
        moves = moves_toward(self.mask, wanted, rates, self._max_moves(stall_seconds))
        if not moves:
            return 0
        flat, free = self.slot_of_expert.reshape(-1), self._free_slots()
        slots = []
        for leaving, _ in moves:
            slots.append(free.pop(0) if leaving is None else int(flat[leaving]))
            if leaving is not None:
                flat[leaving] = -1
        self._put(zip(slots, (coming for _, coming in moves), strict=True))
        return len(moves)

    def _put(self, placed: Iterable[tuple[int, int]]) -> None:
        """As `_copy`, and remembers how long it took."""
        started = time.perf_counter()
        num_copies = self._copy(placed)
        if num_copies:
            self._took((time.perf_counter() - started) / num_copies)

    def _copy(self, placed: Iterable[tuple[int, int]]) -> int:
        """Experts, by their flat ids, into slots; then the table. How many.

        Where a copy fails, who was to come is the CPU's; where the device failed, all are: its table and this one say
        the same.
        """
        assert self.slots is not None
        flat, num_copies = self.slot_of_expert.reshape(-1), 0
        try:
            for slot, expert in placed:
                self.slots.put(slot, *divmod(expert, self._experts_per_layer))
                flat[expert] = slot
                num_copies += 1
        finally:
            self._tell_device()
        return num_copies

    def _tell_device(self) -> None:
        """Its table. What it failed with is raised once both tables are empty: nobody knows what lies in its slots."""
        assert self.slots is not None
        try:
            self.slots.set_table(self.slot_of_expert)
            self._accelerator.synchronize()
        except AcceleratorError:
            self.slot_of_expert[:] = -1
            self.slots.set_table(self.slot_of_expert)
            self._accelerator.synchronize()
            raise

    def _free_slots(self) -> list[int]:
        taken = set(self.slot_of_expert.reshape(-1).tolist())
        return [slot for slot in range(self.num_slots) if slot not in taken]

    def _max_moves(self, stall_seconds: float) -> int:
        return 1 if self._copy_seconds is None else int(stall_seconds / max(self._copy_seconds, 1e-9))

    def _took(self, seconds: float) -> None:
        """A slow copy counts at once, and is forgotten slowly: the next stall is not longer than was asked for."""
        before = 0.0 if self._copy_seconds is None else self._copy_seconds
        self._copy_seconds = max(seconds, 0.9 * before)
