"""Pages are taken, given back, and never held by two."""

from __future__ import annotations

import random

import numpy as np
import pytest

from ktdesk_engine.errors import ContextOverflowError
from ktdesk_engine.kv_cache import PAGE_SIZE, CachedSequence, KVCache, LayerCacheShape, cache_bytes

SHAPE = LayerCacheShape(num_kv_heads=2, key_length=4, value_length=3)


def test_a_sequence_takes_pages_as_it_grows_and_gives_them_back() -> None:
    cache, sequence = KVCache([SHAPE], 3 * PAGE_SIZE), CachedSequence()
    first = cache.extend(sequence, PAGE_SIZE)
    assert first.positions.tolist() == list(range(PAGE_SIZE))
    assert len(sequence.pages) == 1
    second = cache.extend(sequence, 1)
    assert second.positions.tolist() == [PAGE_SIZE]
    assert cache.num_free_pages == 1
    cache.release(sequence)
    assert cache.num_free_pages == 3
    assert sequence == CachedSequence()


def test_too_many_tokens_are_refused_and_take_nothing() -> None:
    cache, sequence = KVCache([SHAPE], 100), CachedSequence()
    cache.extend(sequence, 90)
    with pytest.raises(ContextOverflowError, match=r"101 tokens.*100"):
        cache.extend(sequence, 11)
    assert (sequence.length, len(sequence.pages), cache.num_free_pages) == (90, 2, 0)


def test_what_is_written_is_found_at_its_page_and_offset() -> None:
    cache, sequence = KVCache([SHAPE, SHAPE], 2 * PAGE_SIZE), CachedSequence()
    context = cache.extend(sequence, PAGE_SIZE + 3)
    rng = np.random.default_rng(0)
    keys = rng.standard_normal((PAGE_SIZE + 3, 2, 4)).astype(np.float32)
    values = rng.standard_normal((PAGE_SIZE + 3, 2, 3)).astype(np.float32)
    cache.write(1, context, keys, values)
    np.testing.assert_array_equal(cache.keys(1)[sequence.pages[1], 2], keys[PAGE_SIZE + 2])
    np.testing.assert_array_equal(cache.values(1)[sequence.pages[0], 5], values[5])


def test_a_latent_cache_keeps_its_values_in_the_keys() -> None:
    shape = LayerCacheShape(num_kv_heads=1, key_length=6, value_length=4, values_in_keys=True)
    cache, sequence = KVCache([shape], PAGE_SIZE), CachedSequence()
    context = cache.extend(sequence, 1)
    cache.write(0, context, np.arange(6, dtype=np.float32).reshape(1, 1, 6), None)
    assert cache.values(0)[sequence.pages[0], 0, 0].tolist() == [0, 1, 2, 3]
    assert cache_bytes([shape], PAGE_SIZE) == PAGE_SIZE * 6 * 4


def test_no_page_is_ever_held_twice_or_lost() -> None:
    rng = random.Random(0)
    cache, sequences = KVCache([SHAPE], 20 * PAGE_SIZE), [CachedSequence() for _ in range(5)]
    for _ in range(500):
        sequence = rng.choice(sequences)
        if rng.random() < 0.2:
            cache.release(sequence)
        else:
            try:
                cache.extend(sequence, rng.randint(1, 150))
            except ContextOverflowError:
                cache.release(sequence)
        held = [page for s in sequences for page in s.pages]
        assert len(held) == len(set(held)) == 20 - cache.num_free_pages
