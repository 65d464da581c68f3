"""One budget of an accelerator's memory for resident experts and for pages of the cache.

    | slot 0 | slot 1 | ... | slot n-1 | (rest) | place p | place p+1 | ... | place N-1 |
    0                                  ^ border                                 num_bytes

One block is taken once, so every address that a recorded step holds stays what it is: slots lie from its beginning,
places of pages up to its end, and both are views over the whole of it (a page of all layers is one stretch, and
kernels are told how far one is from the next). What changes is where the border is: which slots the tables of experts
name, and which places the tables of pages. Two other ways were left: blocks of one size, each for slots or for pages,
waste what experts leave of them (in Qwen3-30B-A3B an expert takes 2.7 MB, a page 6.3 MB); addresses that are mapped
anew (cuMemMap) cannot be tried without a driver.

When sequences need more places than the cache has, the coldest experts leave. Those that stay, but lie beyond the new
border, move to slots that became free, as many as a stall allows; the others leave too, and come back between later
steps. When places were not needed for a while, the border goes back, a little at a time. Prefixes that are kept for
sequences to come count as needed up to a quarter of the budget; beyond that they leave before experts do.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from ktdesk_engine.backends.accelerator import Accelerator
from ktdesk_engine.errors import AcceleratorMemoryError
from ktdesk_engine.experts.residency import Residency, SlotSize
from ktdesk_engine.kernels import CACHE_LINE, Blocks
from ktdesk_engine.placement import Mask, Rates
from ktdesk_engine.shared_cache import SharedKVCache

log = logging.getLogger("ktdesk.engine")

KEPT_SHARE = 4
"""Of the budget, for pages of prefixes that nobody uses now, before experts have it."""
CALM_CHECKS = 16
"""So often in a row places must not have been needed. The engine looks every 32 steps."""
PLACES_AT_ONCE = 8
"""That go back to experts: their pages have to move."""
SPARE_PART = 4
"""A quarter more places than were needed stay: a little more traffic takes nothing from experts."""


@dataclass(frozen=True)
class Residents:
    """Who should be resident."""

    choose: Callable[[int], Mask]
    """Of so many at most, (L, E)."""
    rates: Callable[[], Rates]
    forced: Mask
    """(L, E): they never leave."""
    stall_seconds: float


@dataclass(frozen=True)
class SharingStats:
    """Now, and since the model was loaded."""

    num_bytes: int
    num_slots: int
    """For experts."""
    num_places: int
    """For pages of the cache."""
    num_places_lent: int
    """To the cache."""
    num_places_returned: int
    num_experts_left: int
    """So that the cache could grow."""


class SharedMemory:
    """The block."""

    def __init__(
        self, accelerator: Accelerator, num_bytes: int, slots: SlotSize, max_slots: int, pages: tuple[int, int]
    ) -> None:
        """max_slots: there are no more experts. pages: how many, and the bytes of one. AcceleratorMemoryError where it
        does not fit."""
        self.num_bytes = num_bytes
        num_places, self._page_bytes = pages
        self._slot_bytes = slots.num_bytes
        self._base = num_bytes - num_places * self._page_bytes
        self._block = accelerator.cache_memory(num_bytes)
        self.max_slots = min(num_bytes // self._slot_bytes, max_slots)
        self.slots: Blocks = self._block[: self.max_slots * self._slot_bytes]
        self.places: Blocks = self._block[self._base :].reshape(num_places, self._page_bytes)

    def num_slots(self, first_place: int) -> int:
        """That lie before this place."""
        return min((self._base + first_place * self._page_bytes) // self._slot_bytes, self.max_slots)

    def first_place(self) -> int:
        """That lies behind all slots there can be."""
        beyond = self.max_slots * self._slot_bytes - self._base
        return min(max(-(-beyond // self._page_bytes), 0), len(self.places))

    def give_back(self, accelerator: Accelerator) -> None:
        """Nobody may have a view of it any more."""
        block = self._block
        del self._block, self.slots, self.places
        accelerator.give_back_memory(block)


class MemorySharing:
    """Implements `shared_cache.Lender`. Called between steps only."""

    def __init__(
        self,
        accelerator: Accelerator,
        residency: Residency,
        cache: SharedKVCache,
        slots: SlotSize,
        residents: Residents,
        work_bytes: int,
        floor: int,
        prepare: Callable[[], None],
    ) -> None:
        """work_bytes: that stay free for what is computed. floor: places that the cache always has. prepare: takes away
        what a step that failed has left."""
        self._accelerator = accelerator
        self._residency = residency
        self._cache = cache
        self._slots = slots
        self._residents = residents
        self._work_bytes = work_bytes
        self._floor = min(floor, cache.num_pages)
        self._prepare = prepare
        self._memory: SharedMemory | None = None
        self._peaks: deque[int] = deque(maxlen=CALM_CHECKS)
        self._num_lent = self._num_returned = self._num_left = 0
        cache.lender = self

    @property
    def spare_bytes(self) -> int:
        """Of the budget, beside all pages of the cache: it is never less than those."""
        return 0 if self._memory is None else self._memory.num_bytes - self._cache.num_bytes

    @property
    def stats(self) -> SharingStats:
        num_bytes = 0 if self._memory is None else self._memory.num_bytes
        counts = (self._num_lent, self._num_returned, self._num_left)
        return SharingStats(num_bytes, self._residency.num_slots, self._cache.num_places, *counts)

    def begin(self) -> None:
        """Takes what is free, or what all experts and pages need."""
        self._lie_in(self._budget(self._residency.num_experts * self._slots.num_bytes))

    def refill(self) -> None:
        """With who should be resident now."""
        self._residency.occupy(self._residents.choose(self._residency.num_slots))

    def resize(self, spare_bytes: int) -> None:
        """So much beside all pages, or what there is of it; the rest is free for others. What was recorded is void.
        AcceleratorMemoryError where others took what the pages need: `restore` tries again."""
        self._cache.lift()
        self._residency.clear()
        if self._memory is not None:
            self._memory.give_back(self._accelerator)
            self._memory = None
        self._lie_in(self._budget(spare_bytes))

    def restore(self) -> None:
        """Before a step: takes memory for the pages, where they had to be left without."""
        if self._memory is None:
            self._lie_in(self._budget(0))

    def halve(self) -> bool:
        """Half of the memory that is not the cache's goes to others; False where that is less than an expert, or where
        those that must be resident need it. What was recorded is void."""
        spare_bytes = self.spare_bytes // 2
        num_forced = int(self._residents.forced.sum())
        if self.spare_bytes < self._slots.num_bytes or spare_bytes < num_forced * self._slots.num_bytes:
            return False
        self.resize(spare_bytes)
        return True

    def lend(self, num_places: int) -> None:
        self._prepare()
        self.restore()
        assert self._memory is not None
        first = self._cache.first_place - num_places
        num_slots, who = self._memory.num_slots(first), self._residents
        num_left = self._residency.shrink(num_slots, who.forced, who.rates(), who.stall_seconds)
        self._cache.add_places(first)
        self._num_lent += num_places
        self._num_left += num_left
        log.debug("the cache takes %d places more: %d experts leave the accelerator", num_places, num_left)

    def look(self) -> None:
        """Now and then: places that were not needed lately go back to the experts."""
        assert self._memory is not None
        cache = self._cache
        self._peaks.append(cache.peak())
        if len(self._peaks) < CALM_CHECKS:
            return
        needed = max(self._peaks)
        kept = min(cache.num_used_pages, cache.num_kept_places)
        wanted = min(max(needed + needed // SPARE_PART, kept, self._floor), cache.num_pages)
        at_once = max(PLACES_AT_ONCE, -(-self._slots.num_bytes // cache.page_bytes))
        first = min(cache.first_place + min(cache.num_places - wanted, at_once), self._memory.first_place())
        if first > cache.first_place and self._memory.num_slots(first) > self._residency.num_slots:
            self._num_returned += first - cache.first_place
            log.debug("%d places of the cache go back to experts", first - cache.first_place)
            cache.give_up_places(first)
            self._residency.num_slots = self._memory.num_slots(first)

    def _budget(self, spare_bytes: int) -> int:
        """As much beside all pages, or what is free. Slots may need some besides, which is not of the block."""
        free = self._accelerator.free_bytes - self._work_bytes
        slot, side = self._slots
        num_bytes = self._cache.num_bytes + spare_bytes
        if num_bytes + num_bytes // slot * side > free:
            num_bytes = free * slot // (slot + side)
        return max(num_bytes, self._cache.num_bytes) // CACHE_LINE * CACHE_LINE

    def _lie_in(self, num_bytes: int) -> None:
        memory = self._memory = self._taken(num_bytes)
        cache = self._cache
        cache.num_kept_places = max(num_bytes // KEPT_SHARE // cache.page_bytes, self._floor)
        first = min(cache.num_pages - max(self._floor, cache.num_lifted_pages), memory.first_place())
        choose = self._residents.choose
        choose(memory.num_slots(0))  # refused now, where it could not be kept
        cache.lie_in(memory.places, first)
        num_slots = memory.num_slots(first)
        self._residency.lie_in(memory.slots, memory.max_slots, num_slots, choose(num_slots))
        self._peaks.clear()

    def _taken(self, num_bytes: int) -> SharedMemory:
        """Half of what experts would have, and half again, where others took the memory meanwhile."""
        pages = (self._cache.num_pages, self._cache.page_bytes)
        try:
            return SharedMemory(self._accelerator, num_bytes, self._slots, self._residency.num_experts, pages)
        except (AcceleratorMemoryError, MemoryError) as error:
            spare_bytes = num_bytes - self._cache.num_bytes
            if spare_bytes == 0:
                raise
            log.warning("%s", error)
        half = spare_bytes // 2 // CACHE_LINE * CACHE_LINE
        return self._taken(self._cache.num_bytes + (half if half >= self._slots.num_bytes else 0))
