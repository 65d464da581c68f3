"""Slots for experts in memory of their own, which the cache does not share."""

from __future__ import annotations

import logging
from collections.abc import Callable

from ktdesk_engine.backends.accelerator import Accelerator
from ktdesk_engine.errors import AcceleratorMemoryError, ConfigError
from ktdesk_engine.experts.residency import Residency, SlotSize
from ktdesk_engine.placement import Budget, Mask

log = logging.getLogger("ktdesk.engine")


class OwnSlots:
    """Implements `expert_half.SlotMemory`."""

    def __init__(
        self,
        accelerator: Accelerator,
        residency: Residency,
        slot: SlotSize,
        choose: Callable[[int], Mask],
        num_wanted: int | None,
        work_bytes: int,
    ) -> None:
        """choose: the experts that should be resident, of so many at most. num_wanted: as many as fit, or so many.
        work_bytes: that stay free for what is computed."""
        self._accelerator = accelerator
        self._residency = residency
        self._slot = slot
        self._choose = choose
        self._num_wanted = num_wanted
        self._work_bytes = work_bytes

    def begin(self) -> None:
        """ConfigError where there is no room for as many as were asked for."""
        self._fill(self._num_slots())

    def refill(self) -> None:
        self._residency.occupy(self._choose(self._residency.num_slots))

    def resize(self, num_bytes: int) -> None:
        self._residency.clear()
        self._fill(Budget(min(num_bytes, self._free_bytes), self._slot.num_bytes).num_slots)

    def halve(self) -> bool:
        if self._residency.slots is None:
            return False
        self._fill(self._residency.num_resident // 2)
        return True

    def look(self) -> None:
        """Nobody else needs it."""

    def _fill(self, num_slots: int) -> None:
        """Half of them, and half again, where others took the memory meanwhile."""
        self._residency.clear()
        wanted = self._choose(num_slots)
        try:
            self._residency.fill(wanted)
        except (AcceleratorMemoryError, MemoryError) as error:
            self._residency.clear()
            log.warning("%s", error)
            self._fill(num_slots // 2)

    @property
    def _free_bytes(self) -> int:
        return max(self._accelerator.free_bytes - self._work_bytes, 0)

    def _num_slots(self) -> int:
        budget = Budget(self._free_bytes, self._slot.num_bytes)
        if self._num_wanted is None:
            return budget.num_slots
        if self._num_wanted > budget.num_slots:
            raise ConfigError(
                f"accelerator_experts {self._num_wanted}: there is room for {budget.num_slots} experts of "
                f"{self._slot.num_bytes:,} bytes; ask for fewer"
            )
        return self._num_wanted
