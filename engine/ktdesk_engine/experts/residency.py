"""Which experts lie on the accelerator now: slots, the tables that say which, and moves between tokens."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np

from ktdesk_engine.backends.accelerator import Accelerator, ExpertSlots, HostExperts
from ktdesk_engine.kernels import Ids
from ktdesk_engine.placement import Mask, Rates, moves_toward


class Residency:
    """Slots of one pool over all layers. Call it between steps; what it changes counts from the next step on."""

    def __init__(self, accelerator: Accelerator, layers: Sequence[HostExperts]) -> None:
        num_experts = layers[0].in_memory.num_experts
        self._accelerator = accelerator
        self._layers = layers
        self.slot_of_expert: Ids = np.full((len(layers), num_experts), -1, np.int32)
        """(L, E), read by the CPU in each step: it stays in its place."""
        self.slots: ExpertSlots | None = None
        """None: all experts are the CPU's."""
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
        for slot, (layer, expert) in enumerate(np.argwhere(wanted)):
            self.slots.put(slot, int(layer), int(expert))
            self.slot_of_expert[layer, expert] = slot
        self.slots.set_table(self.slot_of_expert)
        self._accelerator.synchronize()

    def clear(self) -> None:
        """All experts are the CPU's; what was recorded before is void."""
        self.slot_of_expert[:] = -1
        if self.slots is not None:
            self.slots.close()
            self.slots = None

    def move(self, wanted: Mask, rates: Rates, stall_seconds: float) -> int:
        """Exchanges experts in place toward `wanted`, for about so long at most; returns how many came.

        Without a measurement it moves one, and so gets one.
        """
        if self.slots is None:
            return 0
        max_moves = 1 if self._copy_seconds is None else int(stall_seconds / max(self._copy_seconds, 1e-9))
        moves = moves_toward(self.mask, wanted, rates, max_moves)
        if not moves:
            return 0
        started = time.perf_counter()
        flat = self.slot_of_expert.reshape(-1)
        for leaving, coming in moves:
            slot = flat[coming] = flat[leaving]
            flat[leaving] = -1
            self.slots.put(int(slot), *divmod(coming, self.slot_of_expert.shape[1]))
        self.slots.set_table(self.slot_of_expert)
        self._accelerator.synchronize()
        self._took((time.perf_counter() - started) / len(moves))
        return len(moves)

    def _took(self, seconds: float) -> None:
        """A slow copy counts at once, and is forgotten slowly: the next stall is not longer than was asked for."""
        before = 0.0 if self._copy_seconds is None else self._copy_seconds
        self._copy_seconds = max(seconds, 0.9 * before)
