"""Four thousand real requests through the tree: it keeps exactly what a plain list by last use would keep."""

from __future__ import annotations

import json
import random
from collections import Counter, OrderedDict
from collections.abc import Sequence
from pathlib import Path

import pytest
from fake_pool import PAGE_BYTES, FakePool, run_request
from shared_data import shared_data

from ktdesk_engine.prefix_cache.cache import PrefixCache
from ktdesk_engine.prefix_cache.disk_store import DiskStore
from ktdesk_engine.prefix_cache.page_file import HEADER

KEY_BYTES = 4
FILE_BYTES = HEADER.size + KEY_BYTES + PAGE_BYTES
FINGERPRINT = bytes(20)


class LeastRecentlyUsed:
    """Blocks by last use; knows no tree. Equal ids have equal prefixes, so an id stands for its path."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._blocks: OrderedDict[int, None] = OrderedDict()

    def serve(self, ids: Sequence[int]) -> int:
        """How many of the first blocks are there. Then all are, and the longest unused are not."""
        num_hits = next((count for count, block in enumerate(ids) if block not in self._blocks), len(ids))
        for block in reversed(ids):
            self._blocks[block] = None
            self._blocks.move_to_end(block)
        while len(self._blocks) > self._capacity:
            self._blocks.popitem(last=False)
        return num_hits


def requests(max_pages: int) -> list[list[int]]:
    """The pages of each request, as far as a pool of so many can hold them at once."""
    lines = shared_data("traces/mooncake-conversation-first4000.jsonl").read_text().splitlines()
    return [json.loads(line)["hash_ids"][:max_pages] for line in lines]


def keys_of(ids: Sequence[int]) -> list[bytes]:
    return [block.to_bytes(KEY_BYTES, "little") for block in ids]


def conversations(max_pages: int, count: int) -> list[list[int]]:
    """The first requests of the busiest conversations: those that share more than the block which nearly all share."""
    all_requests = requests(max_pages)
    openings = Counter(tuple(ids[:2]) for ids in all_requests if len(ids) > 5)
    busiest = {opening for opening, _ in openings.most_common(40)}
    return [ids for ids in all_requests if tuple(ids[:2]) in busiest][:count]


@pytest.mark.parametrize("seed", range(2))
def test_a_replay_hits_as_often_as_plain_least_recently_used(seed: int) -> None:
    rng = random.Random(seed)
    pool = FakePool(rng.randint(20, 100))
    ram_bytes = rng.randint(0, 100 * PAGE_BYTES)
    cache = PrefixCache(pool, ram_bytes)
    plain = LeastRecentlyUsed(pool.num_pages + ram_bytes // PAGE_BYTES)
    num_hits = 0
    for ids in requests(pool.num_pages):
        hits = run_request(cache, pool, keys_of(ids))
        assert hits == plain.serve(ids)
        cache.check_integrity()
        num_hits += hits
    assert num_hits == cache.stats().num_hit_pages.total > 0


def test_a_replay_with_memory_for_most_hits_what_can_be_hit() -> None:
    pool = FakePool(20_000)
    cache = PrefixCache(pool, 60_000 * PAGE_BYTES)
    seen: set[int] = set()
    for ids in requests(pool.num_pages):
        assert run_request(cache, pool, keys_of(ids)) == len(seen.intersection(ids))
        seen.update(ids)
    cache.check_integrity()


@pytest.mark.parametrize("seed", range(2))
def test_a_replay_with_a_disk_hits_as_often_as_the_larger_of_memory_and_disk_would(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    pool = FakePool(rng.randint(10, 40))
    disk_bytes = rng.randint(200, 400) * FILE_BYTES + rng.randint(0, FILE_BYTES - 1)
    plain = LeastRecentlyUsed(disk_bytes // FILE_BYTES)
    with DiskStore(tmp_path, FINGERPRINT, disk_bytes) as disk:
        cache = PrefixCache(pool, 0, disk, FINGERPRINT)
        for ids in conversations(pool.num_pages, 120):
            assert run_request(cache, pool, keys_of(ids)) == plain.serve(ids)
            while cache.write_behind():
                continue
            cache.check_integrity()
            disk.check_integrity()
        assert cache.stats().num_hit_pages.disk > 0
