"""Pages are taken, given back, and never held by two."""

from __future__ import annotations

import random

import numpy as np
import pytest

from ktdesk_engine.config import CACHE_TYPES, CacheType
from ktdesk_engine.errors import ConfigError, ContextOverflowError
from ktdesk_engine.kv_cache import PAGE_SIZE, CachedSequence, KVCache, LayerCacheShape, cache_bytes

SHAPE = LayerCacheShape(num_kv_heads=2, key_length=4, value_length=3)
SHAPE_OF_BLOCKS = LayerCacheShape(num_kv_heads=1, key_length=64, value_length=64)
LATENT = LayerCacheShape(num_kv_heads=1, key_length=96, value_length=64, values_in_keys=True)


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


def test_sequences_are_extended_together_and_have_tables_of_one_width() -> None:
    cache = KVCache([SHAPE], 3 * PAGE_SIZE, num_sequences=2)
    first, second = CachedSequence(), CachedSequence()
    assert cache.extend(first, PAGE_SIZE).page_tables.shape == (1, 3)
    cache.extend(second, 5)
    cache.grow([second, first], 1)
    context = cache.last_tokens([second, first])
    assert context.positions.tolist() == [5, PAGE_SIZE]
    assert context.sequences.tolist() == [0, 1]
    assert context.page_tables.tolist() == [[*second.pages, 0, 0], [*first.pages, 0]]
    assert len(set(first.pages + second.pages)) == 3
    assert cache.num_free_pages == 6 - 3


def test_too_many_tokens_are_refused_and_take_nothing() -> None:
    cache, sequence = KVCache([SHAPE], 100), CachedSequence()
    cache.extend(sequence, 90)
    with pytest.raises(ContextOverflowError, match=r"101 tokens.*100"):
        cache.extend(sequence, 11)
    assert (sequence.length, len(sequence.pages), cache.num_free_pages) == (90, 2, 0)


@pytest.mark.parametrize("cache_type", CACHE_TYPES)
def test_pages_have_as_many_bytes_as_were_counted(cache_type: CacheType) -> None:
    shapes = [LayerCacheShape(num_kv_heads=2, key_length=64, value_length=32), LATENT]
    cache = KVCache(shapes, 100, cache_type)
    arrays = [cache.keys(0).pages, cache.values(0).pages, cache.keys(1).pages]
    assert sum(array.nbytes for array in arrays) == cache_bytes(shapes, 100, cache_type)
    bytes_of_32 = {"float32": 128, "f16": 64, "bf16": 64, "q8_0": 34}[cache_type]
    assert cache_bytes(shapes, 100, cache_type) == 2 * PAGE_SIZE * (2 * (2 + 1) + 3) * bytes_of_32


def test_a_latent_cache_keeps_its_values_in_the_keys() -> None:
    cache = KVCache([LATENT], PAGE_SIZE, "f16")
    assert cache.values(0).pages is cache.keys(0).pages
    assert (cache.keys(0).length, cache.values(0).length) == (96, 64)


def test_a_head_of_odd_length_fills_up_with_what_counts_as_nothing() -> None:
    shape = LayerCacheShape(num_kv_heads=1, key_length=17, value_length=16)
    assert cache_bytes([shape], PAGE_SIZE, "f16") == PAGE_SIZE * (32 + 16) * 2


@pytest.mark.parametrize("lengths", [(80, 64), (64, 80)])
def test_blocks_that_do_not_fit_a_head_are_refused_by_name(lengths: tuple[int, int]) -> None:
    shape = LayerCacheShape(1, *lengths)
    with pytest.raises(ConfigError, match=r"q8_0 has blocks of 32 values.*have 80: use f16 or bf16"):
        KVCache([SHAPE_OF_BLOCKS, shape], PAGE_SIZE, "q8_0")
    KVCache([shape], PAGE_SIZE, "bf16")


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


@pytest.mark.parametrize("cache_type", CACHE_TYPES)
def test_a_page_that_is_read_and_written_elsewhere_is_the_same_page(cache_type: CacheType) -> None:
    shapes = [LayerCacheShape(num_kv_heads=2, key_length=64, value_length=32), LATENT]
    cache = KVCache(shapes, 3 * PAGE_SIZE, cache_type)
    arrays = [cache.keys(0).pages, cache.values(0).pages, cache.keys(1).pages]
    rng = np.random.default_rng(0)
    for array in arrays:
        array[:] = rng.integers(0, 256, array.shape)
    before = [array.copy() for array in arrays]
    content = cache.read_page(1)
    assert content.nbytes == cache.page_bytes == cache_bytes(shapes, PAGE_SIZE, cache_type)
    cache.write_page(2, content)
    for array, old in zip(arrays, before, strict=True):
        assert (array == old[[0, 1, 1]]).all()


def test_pages_that_are_taken_are_free_again_when_given_back() -> None:
    cache = KVCache([SHAPE], 2 * PAGE_SIZE)
    pages = [cache.take_page() for _ in range(2)]
    assert sorted(pages) == [0, 1]
    assert cache.num_free_pages == 0
    cache.give_back(pages[0])
    assert cache.take_page() == pages[0]
