"""Prefixes whose pages lie on an accelerator go to host memory and disk, and come back."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from ktdesk_engine.config import EngineConfig
from ktdesk_engine.engine import Engine
from ktdesk_engine.kv_cache import PAGE_SIZE, CachedSequence
from ktdesk_engine.prefix_cache.cache import PrefixCache
from ktdesk_engine.prefix_cache.limits import CacheLimits
from ktdesk_engine.prefix_cache.pages import page_keys

NUM_PAGES = 4
FIRST, SECOND = (np.random.default_rng(seed).integers(0, 250, 3 * PAGE_SIZE + 5).tolist() for seed in (1, 2))


def answered(engine: Engine, prefixes: PrefixCache, ids: list[int]) -> np.ndarray:
    """Logits after a prompt, of which only what the cache has not is computed."""
    keys = page_keys(ids, PAGE_SIZE)
    lease = prefixes.acquire(keys)
    while prefixes.load_page(lease):
        pass
    sequence = CachedSequence(lease.pages, PAGE_SIZE * len(lease.pages))
    assert prefixes.make_room(NUM_PAGES - len(sequence.pages))
    logits = engine.runner.prefill(sequence, ids[sequence.length :]).copy()
    engine.cache.give_back(sequence.pages[-1])  # the one that is not full
    prefixes.insert(lease, keys, sequence.pages[:-1])
    prefixes.release(lease)
    while prefixes.write_behind():
        pass
    prefixes.check_integrity()
    return logits


@pytest.mark.parametrize("shares", [True, False], ids=["shared", "own"])
@pytest.mark.parametrize("name", ["qwen3moe", "deepseek2-v3"])
def test_a_prompt_that_left_the_accelerator_is_read_from_memory_and_disk(
    name: str, shares: bool, tiny_model: Callable[[str], Path], tmp_path: Path
) -> None:
    config = EngineConfig(
        compute="float32", num_threads=1, context=NUM_PAGES * PAGE_SIZE, accelerator="host-thread", share_memory=shares
    )
    limits = CacheLimits(ram_bytes=1 << 24, disk_bytes=1 << 24, disk_folder=tmp_path)
    with Engine.load(tiny_model(name), config) as engine:
        prefixes = engine.make_prefix_cache(limits)
        want = answered(engine, prefixes, FIRST)
        answered(engine, prefixes, SECOND)
        assert prefixes.stats().num_demoted_pages > 0
        again = answered(engine, prefixes, FIRST)
        assert prefixes.stats().num_hit_pages.ram > 0
        prefixes.close()
    with Engine.load(tiny_model(name), config) as engine:
        prefixes = engine.make_prefix_cache(limits)
        from_disk = answered(engine, prefixes, FIRST)
        assert prefixes.stats().num_hit_pages.disk == 3
        prefixes.close()
    for found in (again, from_disk):
        np.testing.assert_allclose(found, want, rtol=0, atol=3e-5 * np.abs(want).max())
