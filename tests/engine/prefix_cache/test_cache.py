"""The tree and its tiers, without a model: what is shared, what stays, what leaves first."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from fake_pool import PAGE_BYTES, FakePool, FakeSequence, run_request

from ktdesk_engine.prefix_cache.cache import PrefixCache
from ktdesk_engine.prefix_cache.disk_store import DiskStore
from ktdesk_engine.prefix_cache.pages import page_keys
from ktdesk_engine.prefix_cache.stats import CachedPages

FINGERPRINT = bytes(range(20))


def keys(text: str) -> list[bytes]:
    """One page a letter."""
    return [letter.encode() for letter in text]


def make_cache(num_pages: int, num_ram_pages: int = 0) -> tuple[PrefixCache, FakePool]:
    pool = FakePool(num_pages)
    return PrefixCache(pool, num_ram_pages * PAGE_BYTES), pool


def test_whole_pages_have_keys_and_a_rest_has_none() -> None:
    first, second = page_keys(range(9), 4)
    assert np.frombuffer(first, np.int32).tolist() == [0, 1, 2, 3]
    assert np.frombuffer(second, np.int32).tolist() == [4, 5, 6, 7]
    assert page_keys([1, 2, 3], 4) == []


def test_a_second_request_reads_the_pages_of_the_first_and_adds_its_own() -> None:
    cache, pool = make_cache(10)
    assert run_request(cache, pool, keys("abcd")) == 0
    assert run_request(cache, pool, keys("abxy")) == 2
    assert pool.num_free_pages == 10 - 6


def test_the_same_page_after_another_prefix_is_another_page() -> None:
    cache, pool = make_cache(10)
    run_request(cache, pool, keys("abc"))
    assert run_request(cache, pool, keys("xbc")) == 0


def test_running_sequences_share_pages_that_were_inserted_while_they_run() -> None:
    cache, pool = make_cache(10)
    first = FakeSequence(cache, pool, keys("abcd"))
    first.compute(2)
    second = FakeSequence(cache, pool, keys("abcx"))
    assert second.pages == first.pages
    first.release()
    second.check()
    second.release()
    cache.check_integrity()


def test_two_that_compute_the_same_page_end_with_one() -> None:
    cache, pool = make_cache(10)
    first, second = (FakeSequence(cache, pool, keys("ab")) for _ in range(2))
    first.finish()
    second.finish()
    assert first.pages == second.pages
    assert pool.num_free_pages == 8
    cache.check_integrity()


def test_pages_in_use_are_never_taken() -> None:
    cache, pool = make_cache(3)
    running = FakeSequence(cache, pool, keys("ab"))
    running.finish()
    other = FakeSequence(cache, pool, keys("xyz"))
    assert not other.finish()
    running.check()
    assert not cache.make_room(1)
    running.release()
    assert cache.make_room(1)


def test_the_leaf_that_was_unused_for_longest_leaves_first() -> None:
    cache, pool = make_cache(4)
    for text in ("ab", "xy", "ab", "z"):
        run_request(cache, pool, keys(text))
    assert cache.lookup(keys("xy")) == CachedPages(pool=1)
    assert cache.lookup(keys("ab")) == CachedPages(pool=2)


def test_pages_that_leave_the_pool_wait_in_host_memory_and_come_back() -> None:
    cache, pool = make_cache(3, num_ram_pages=3)
    run_request(cache, pool, keys("abc"))
    run_request(cache, pool, keys("xyz"))
    assert cache.lookup(keys("abc")) == CachedPages(ram=3)
    assert run_request(cache, pool, keys("abc")) == 3
    stats = cache.stats()
    assert stats.num_hit_pages == CachedPages(ram=3)
    assert (stats.num_missed_pages, stats.num_demoted_pages, stats.num_evicted_pages) == (6, 6, 0)


def test_a_sequence_that_finds_no_room_for_all_its_cached_pages_takes_what_fits() -> None:
    cache, pool = make_cache(3, num_ram_pages=3)
    run_request(cache, pool, keys("abc"))
    running = FakeSequence(cache, pool, keys("xy"))
    running.finish()
    assert FakeSequence(cache, pool, keys("abc")).num_hits == 1
    cache.check_integrity()


@pytest.mark.parametrize("num_ram_pages", [0, 4])
def test_a_pinned_prefix_stays_while_others_leave(num_ram_pages: int) -> None:
    cache, pool = make_cache(6, num_ram_pages)
    pinned = FakeSequence(cache, pool, keys("system"[:3]))
    pinned.finish()
    cache.pin(pinned.lease, 2)
    pinned.release()
    for text in ("abcd", "efgh", "ijkl", "mnop"):
        run_request(cache, pool, keys(text))
        cache.check_integrity()
    assert cache.lookup(keys("sys")).pool == 2
    assert cache.stats().num_pinned_pages == 2


def test_pins_hold_at_most_half_of_the_pool_and_the_oldest_goes() -> None:
    cache, pool = make_cache(8)
    for text in ("abc", "ad", "xyz"):
        sequence = FakeSequence(cache, pool, keys(text))
        sequence.finish()
        cache.pin(sequence.lease, len(text))
        sequence.release()
        cache.check_integrity()
    assert cache.stats().num_pinned_pages == 3
    run_request(cache, pool, keys("opqrs"))
    assert cache.lookup(keys("xyz")).pool == 3


def test_a_pinned_prefix_gives_way_when_nothing_else_is_left() -> None:
    cache, pool = make_cache(4)
    pinned = FakeSequence(cache, pool, keys("ab"))
    pinned.finish()
    cache.pin(pinned.lease, 2)
    pinned.release()
    run_request(cache, pool, keys("wxyz"))
    assert cache.lookup(keys("ab")).total == 0
    assert cache.stats().num_pinned_pages == 0
    cache.check_integrity()


def test_clearing_forgets_all_that_nobody_uses() -> None:
    cache, pool = make_cache(6, num_ram_pages=4)
    for text in ("abc", "xyz", "abd"):
        run_request(cache, pool, keys(text))
    running = FakeSequence(cache, pool, keys("ab"))
    cache.clear()
    running.check()
    assert pool.num_free_pages == 4
    cache.check_integrity()


def test_a_lookup_changes_nothing() -> None:
    cache, pool = make_cache(4)
    run_request(cache, pool, keys("ab"))
    run_request(cache, pool, keys("xy"))
    cache.lookup(keys("ab"))
    run_request(cache, pool, keys("z"))
    assert cache.lookup(keys("ab")).total == 1


class RandomUse:
    """Requests of a small alphabet, so that they share much, begin, grow, end and are dropped in any order."""

    def __init__(self, cache: PrefixCache, pool: FakePool, rng: random.Random) -> None:
        self._cache = cache
        self._pool = pool
        self._rng = rng
        self._running: list[FakeSequence] = []

    def step(self) -> None:
        step = self._rng.choice([self._begin, self._grow, self._grow, self._end, self._pin, self._load_half])
        step()

    def end_all(self) -> None:
        while self._running:
            self._end()

    def check(self) -> None:
        """Each page is free, in the tree, or one sequence's own: none is lost."""
        self._cache.check_integrity()
        for sequence in self._running:
            sequence.check()
        own = sum(len(sequence.pages) - len(sequence.lease.nodes) for sequence in self._running)
        stats = self._cache.stats()
        assert stats.num_free_pages + stats.num_shared_pages + own == self._pool.num_pages

    def _text(self) -> list[bytes]:
        return keys("".join(self._rng.choices("ab", k=self._rng.randint(0, 9))))

    def _begin(self) -> None:
        if len(self._running) < 4:
            self._running.append(FakeSequence(self._cache, self._pool, self._text()))

    def _grow(self) -> None:
        if self._running:
            sequence = self._rng.choice(self._running)
            missing = len(sequence.keys) - len(sequence.pages)
            sequence.compute(self._rng.randint(0, missing))

    def _pin(self) -> None:
        if self._running:
            lease = self._rng.choice(self._running).lease
            self._cache.pin(lease, self._rng.randint(0, len(lease.nodes)))

    def _load_half(self) -> None:
        """A request that is dropped while its pages come."""
        lease = self._cache.acquire(self._text())
        self._cache.load_page(lease)
        self._cache.release(lease)

    def _end(self) -> None:
        if self._running:
            self._running.pop(self._rng.randrange(len(self._running))).release()


@pytest.mark.parametrize("seed", range(6))
def test_no_order_of_use_loses_a_page_or_serves_a_wrong_one(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    pool = FakePool(rng.randint(10, 30))
    ram_bytes = rng.randint(0, 20 * PAGE_BYTES)
    with DiskStore(tmp_path, FINGERPRINT, rng.randint(0, 4000)) as disk:
        cache = PrefixCache(pool, ram_bytes, disk, FINGERPRINT)
        use = RandomUse(cache, pool, rng)
        for step in range(400):
            use.step()
            use.check()
            if step % 3 == 0:
                cache.write_behind()
            if step % 20 == 0:
                disk.check_integrity()
        use.end_all()
        use.check()
        cache.clear()
        assert pool.num_free_pages == pool.num_pages


def restarted(folder: Path, requests: Sequence[str], pool_pages: int = 8) -> tuple[PrefixCache, FakePool, DiskStore]:
    """A cache that served these and was closed, and its successor."""
    pool = FakePool(pool_pages)
    cache = PrefixCache(pool, 0, DiskStore(folder, FINGERPRINT, 10_000), FINGERPRINT)
    for text in requests:
        run_request(cache, pool, keys(text))
    cache.close()
    pool = FakePool(pool_pages)
    disk = DiskStore(folder, FINGERPRINT, 10_000)
    return PrefixCache(pool, 0, disk, FINGERPRINT), pool, disk


def test_pages_are_read_from_disk_after_a_restart(tmp_path: Path) -> None:
    cache, pool, disk = restarted(tmp_path, ["abc", "abd"])
    with disk:
        assert cache.lookup(keys("abdz")) == CachedPages(disk=3)
        assert run_request(cache, pool, keys("abdz")) == 3
        assert run_request(cache, pool, keys("abc")) == 3
        assert cache.stats().num_hit_pages == CachedPages(pool=2, disk=4)


def test_a_damaged_file_ends_the_prefix_there_and_is_written_anew(tmp_path: Path) -> None:
    cache, pool, disk = restarted(tmp_path, ["abcd"])
    with disk:
        files = sorted(tmp_path.glob("*/*/*.page"))
        content = bytearray(files[1].read_bytes())
        content[-1] ^= 1
        files[1].write_bytes(content)
        num_hits = run_request(cache, pool, keys("abcd"))
        assert num_hits < 4
        assert disk.num_rejected == 1
        while cache.write_behind():
            continue
        disk.check_integrity()
        assert len(sorted(tmp_path.glob("*/*/*.page"))) == 4


def test_another_sequence_that_loads_the_same_file_shares_the_page(tmp_path: Path) -> None:
    cache, pool, disk = restarted(tmp_path, ["abc"])
    with disk:
        leases = [cache.acquire(keys("abc")) for _ in range(2)]
        for lease in leases * 3:
            assert cache.load_page(lease)
            cache.check_integrity()
        assert leases[0].pages == leases[1].pages
        assert pool.num_free_pages == 5
