"""Attention over a paged cache, and writing into it, against the numpy reference on every instruction set."""

from __future__ import annotations

import numpy as np
import pytest

from ktdesk_engine import kernels
from ktdesk_engine.kernels import AttentionRule, CachedRows, PagedContext, WorkerPool, cached_row_bytes, reference
from ktdesk_engine.kernels.pools import NEVER
from ktdesk_engine.quants.formats import WeightType

TYPES = [WeightType.F32, WeightType.F16, WeightType.BF16, WeightType.Q8_0]
every_type = pytest.mark.parametrize("cache_type", TYPES, ids=lambda t: t.name)
PAGE_SIZE = 64


ISAS = kernels.isas(with_variants=True)


@pytest.fixture(params=[*ISAS, *(["tiles"] if "amx" in ISAS else [])])
def pool(request: pytest.FixtureRequest) -> WorkerPool:
    """Of each instruction set, and once more of AMX with attention on tiles."""
    pool = kernels.worker_pool(2, "amx" if request.param == "tiles" else request.param)
    pool.min_tile_queries = 1 if request.param == "tiles" else NEVER
    return pool


def attends_on_tiles(pool: WorkerPool) -> bool:
    return pool.min_tile_queries == 1


def random_floats(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def scattered(*lengths: int) -> tuple[np.ndarray, int]:
    """Page tables of sequences of these lengths, their pages in no order, and how many pages there are."""
    counts = [-(-length // PAGE_SIZE) for length in lengths]
    order = np.random.default_rng(3).permutation(sum(counts)).astype(np.int32)
    tables = np.zeros((len(lengths), max(counts)), np.int32)
    for row, pages in enumerate(np.split(order, np.cumsum(counts)[:-1])):
        tables[row, : len(pages)] = pages
    return tables, len(order)


def empty_rows(cache_type: WeightType, num_pages: int, heads: int, length: int) -> CachedRows:
    """What was never written is NaN: it must not reach a result."""
    pages = np.full((num_pages, heads, PAGE_SIZE, cached_row_bytes(cache_type, length)), 0xFF, np.uint8)
    return CachedRows(cache_type, length, pages)


def last_tokens(tables: np.ndarray, lengths: list[int], counts: list[int]) -> PagedContext:
    """The last tokens of each sequence as one batch."""
    return PagedContext(
        page_tables=tables,
        sequences=np.repeat(np.arange(len(lengths)), counts).astype(np.int32),
        positions=np.concatenate(
            [np.arange(n - count, n) for n, count in zip(lengths, counts, strict=True)], dtype=np.int32
        ),
    )


def filled_rows(
    cache_type: WeightType, tables: np.ndarray, num_pages: int, lengths: list[int], heads: int, length: int, seed: int
) -> CachedRows:
    rows = empty_rows(cache_type, num_pages, heads, length)
    context = last_tokens(tables, lengths, lengths)
    reference.store_rows(rows, context, random_floats(sum(lengths), heads, length, seed=seed))
    return rows


def assert_attends(
    pool: WorkerPool,
    queries: np.ndarray,
    keys: CachedRows,
    values: CachedRows,
    context: PagedContext,
    rule: AttentionRule,
) -> None:
    """As the reference: within the rounding of float32 sums, on tiles of two bfloat16."""
    got = kernels.attention(pool, queries, keys, values, context, rule)
    want = reference.attention(queries, keys, values, context, rule)
    assert got.dtype == np.float32
    error = np.abs(got - want)
    bound = 2e-5 + 2e-5 * np.abs(want)
    if attends_on_tiles(pool):
        bound = bound + bfloat16_bound(queries, keys, values, context, rule)
    assert (error <= bound).all(), f"{(error / bound).max():.2f} of what rounding explains"


def bfloat16_bound(
    queries: np.ndarray, keys: CachedRows, values: CachedRows, context: PagedContext, rule: AttentionRule
) -> np.ndarray:
    """What rounding to two bfloat16 may change, (T, heads, value D).

    Two leave 2^-18 of a number, and the product of both seconds, which is not made, is 2^-18 of a product. With
    u = 2^-17, each product of a score is off by at most (1 + u)^2 - 1 of itself: the score by d, that of the sum of
    products' magnitudes. So a share is off by a factor of exp(2 d) at most, numerator and denominator, and in the
    product with values by two roundings more.
    """
    u = 2.0**-17
    head_groups = queries.shape[1] // keys.pages.shape[1]
    magnitudes = np.abs(reference.cached_values(keys))
    pages = context.page_tables[context.sequences]
    largest = np.zeros(queries.shape[:2])
    for t, position in enumerate(context.positions):
        first = max(0, position + 1 - rule.window) if rule.window else 0
        seen = np.arange(first, position + 1)
        page_size = keys.pages.shape[2]
        rows = magnitudes[pages[t][seen // page_size], :, seen % page_size]  # (seen, kv heads, D)
        rows = np.repeat(rows, head_groups, axis=1)
        largest[t] = np.einsum("phd,hd->ph", rows, np.abs(queries[t])).max(axis=0)
    d = ((1 + u) ** 2 - 1) * rule.scale * largest
    positive = CachedRows(WeightType.F32, values.length, float_pages(np.abs(reference.cached_values(values))))
    mixed = reference.attention(queries, float_keys(keys), positive, context, rule)
    return (np.exp(2 * d)[:, :, None] * (1 + u) ** 2 - 1) * mixed


def float_pages(values: np.ndarray) -> np.ndarray:
    padded = np.zeros((*values.shape[:3], cached_row_bytes(WeightType.F32, values.shape[3]) // 4), np.float32)
    padded[..., : values.shape[3]] = values
    return padded.view(np.uint8)


def float_keys(keys: CachedRows) -> CachedRows:
    return CachedRows(WeightType.F32, keys.length, float_pages(reference.cached_values(keys)))


@every_type
@pytest.mark.parametrize("length", [1, 15, 16, 17, 33, 63, 64, 65, 130])
def test_a_token_sees_all_positions_up_to_its_own(pool: WorkerPool, cache_type: WeightType, length: int) -> None:
    tables, num_pages = scattered(length + 3)  # three positions that nobody wrote
    keys, values = (filled_rows(cache_type, tables, num_pages, [length], 2, 64, seed) for seed in (1, 2))
    context = last_tokens(tables, [length], [1])
    queries, rule = random_floats(1, 6, 64), AttentionRule(scale=0.125)
    assert_attends(pool, queries, keys, values, context, rule)


@pytest.mark.parametrize("cache_type", TYPES[:3], ids=lambda t: t.name)
@pytest.mark.parametrize(
    ("heads", "kv_heads", "length", "value_length"),
    [(1, 1, 8, 8), (6, 2, 20, 12), (9, 1, 64, 48), (5, 5, 17, 33), (7, 1, 80, 1), (28, 4, 96, 112), (3, 1, 1, 16)],
)
def test_heads_of_any_size_and_number(
    pool: WorkerPool, cache_type: WeightType, heads: int, kv_heads: int, length: int, value_length: int
) -> None:
    lengths = [70, 35]
    tables, num_pages = scattered(*lengths)
    keys = filled_rows(cache_type, tables, num_pages, lengths, kv_heads, length, seed=1)
    values = filled_rows(cache_type, tables, num_pages, lengths, kv_heads, value_length, seed=2)
    context = last_tokens(tables, lengths, [9, 2])
    queries, rule = random_floats(11, heads, length), AttentionRule(scale=0.3)
    assert_attends(pool, queries, keys, values, context, rule)


RULES = {
    "window_of_1": AttentionRule(scale=0.1, window=1),
    "window_of_100": AttentionRule(scale=0.1, window=100),
    "window_of_300": AttentionRule(scale=0.1, window=300),
    "soft_cap": AttentionRule(scale=3.0, soft_cap=20.0),
    "sinks": AttentionRule(scale=0.1, sinks=10 * random_floats(8, seed=9)),
    "sinks_and_window": AttentionRule(scale=0.1, window=70, sinks=-10 * random_floats(8, seed=9)),
}


@every_type
@pytest.mark.parametrize("rule", RULES.values(), ids=RULES.keys())
def test_several_sequences_and_every_rule(pool: WorkerPool, cache_type: WeightType, rule: AttentionRule) -> None:
    lengths = [600, 1, 258, 40]
    tables, num_pages = scattered(*lengths)
    keys, values = (filled_rows(cache_type, tables, num_pages, lengths, 2, 32, seed) for seed in (1, 2))
    context = last_tokens(tables, lengths, [3, 1, 12, 40])
    queries = random_floats(56, 8, 32)
    assert_attends(pool, queries, keys, values, context, rule)


@every_type
@pytest.mark.parametrize("heads", [1, 16])
def test_values_that_lie_in_the_keys(pool: WorkerPool, cache_type: WeightType, heads: int) -> None:
    tables, num_pages = scattered(130)
    keys = filled_rows(cache_type, tables, num_pages, [130], 1, 576, seed=1)
    values = CachedRows(cache_type, 512, keys.pages)
    context = last_tokens(tables, [130], [3])
    queries, rule = random_floats(3, heads, 576), AttentionRule(scale=576**-0.5)
    assert_attends(pool, queries, keys, values, context, rule)


def test_the_exponential_is_right_to_the_last_bits(pool: WorkerPool) -> None:
    """Two positions, of score 0 and x <= 0 and of value 0 and 1: the result is exp(x) / (1 + exp(x))."""
    if attends_on_tiles(pool):
        pytest.skip("scores are products of two bfloat16 on tiles")
    x = np.concatenate([np.linspace(-86.9, 0, 20_001), -np.logspace(-8, 1, 1000)]).astype(np.float32)
    tables = np.zeros((1, 1), np.int32)
    keys, values = (empty_rows(WeightType.F32, 1, 1, 1) for _ in range(2))
    for rows in (keys, values):
        reference.store_rows(rows, last_tokens(tables, [2], [2]), np.array([0, 1], np.float32).reshape(2, 1, 1))
    context = PagedContext(tables, np.zeros(len(x), np.int32), np.ones(len(x), np.int32))
    got = kernels.attention(pool, x.reshape(-1, 1, 1), keys, values, context, AttentionRule(scale=1.0))
    want = 1 / (1 + np.exp(-x.astype(np.float64)))
    np.testing.assert_allclose(got.ravel(), want, rtol=4 * 2**-23, atol=0)


def test_scores_far_apart_leave_only_the_largest(pool: WorkerPool) -> None:
    """exp of what is far below the largest score is 0, and of what is far above a sink no infinity."""
    tables, num_pages = scattered(300)
    keys = filled_rows(WeightType.F32, tables, num_pages, [300], 1, 16, seed=1)
    values = filled_rows(WeightType.F32, tables, num_pages, [300], 1, 16, seed=2)
    context = last_tokens(tables, [300], [2])
    queries, rule = random_floats(2, 1, 16), AttentionRule(scale=1000.0, sinks=np.array([-1e30], np.float32))
    got = kernels.attention(pool, queries, keys, values, context, rule)
    assert np.isfinite(got).all()
    if not attends_on_tiles(pool):  # where rounding may choose another position
        want = reference.attention(queries, keys, values, context, rule)
        np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("page_size", [1, 4, 96, 128])
def test_pages_of_any_size(pool: WorkerPool, page_size: int) -> None:
    num_pages = -(-150 // page_size)
    tables = np.random.default_rng(0).permutation(num_pages).astype(np.int32)[None]
    pages = [np.full((num_pages, 2, page_size, 64), 0xFF, np.uint8) for _ in range(2)]
    keys, values = (CachedRows(WeightType.F16, 32, array) for array in pages)
    for seed, rows in enumerate((keys, values)):
        reference.store_rows(rows, last_tokens(tables, [150], [150]), random_floats(150, 2, 32, seed=seed))
    context = last_tokens(tables, [150], [20])
    queries, rule = random_floats(20, 4, 32), AttentionRule(scale=0.2, window=40)
    assert_attends(pool, queries, keys, values, context, rule)


@pytest.mark.skipif("amx" not in ISAS, reason="needs AMX")
@every_type
def test_tiles_are_used_only_where_the_pool_says_so(cache_type: WeightType) -> None:
    tables, num_pages = scattered(200)
    keys, values = (filled_rows(cache_type, tables, num_pages, [200], 1, 64, seed) for seed in (1, 2))
    context, rule, queries = last_tokens(tables, [200], [5]), AttentionRule(scale=0.125), random_floats(5, 4, 64)
    pool, vectors = kernels.worker_pool(2, "amx"), kernels.worker_pool(2, "avx512")
    exact = kernels.attention(vectors, queries, keys, values, context, rule)
    np.testing.assert_array_equal(kernels.attention(pool, queries, keys, values, context, rule), exact)
    pool.min_tile_queries = 21
    np.testing.assert_array_equal(kernels.attention(pool, queries, keys, values, context, rule), exact)
    pool.min_tile_queries = 20  # 5 tokens of 4 heads to a head of keys
    assert (kernels.attention(pool, queries, keys, values, context, rule) != exact).any()


@every_type
@pytest.mark.parametrize(("heads", "kv_heads"), [(8, 1), (6, 2), (4, 4)])
@pytest.mark.parametrize("window", [0, 333])
def test_a_token_has_the_same_bits_alone_in_a_batch_and_on_any_number_of_threads(
    pool: WorkerPool, cache_type: WeightType, heads: int, kv_heads: int, window: int
) -> None:
    lengths = [900, 515]
    tables, num_pages = scattered(*lengths)
    keys, values = (filled_rows(cache_type, tables, num_pages, lengths, kv_heads, 32, seed) for seed in (1, 2))
    rule = AttentionRule(scale=0.3, window=window)
    context = last_tokens(tables, lengths, [400, 30])
    queries = random_floats(430, heads, 32)
    whole = kernels.attention(pool, queries, keys, values, context, rule)
    for threads in (1, 5):
        other_pool = kernels.worker_pool(threads, pool.isa)
        other_pool.min_tile_queries = pool.min_tile_queries
        np.testing.assert_array_equal(kernels.attention(other_pool, queries, keys, values, context, rule), whole)
    for part in (slice(0, 1), slice(113, 114), slice(140, 153), slice(399, 404), slice(429, 430)):
        some = PagedContext(tables, context.sequences[part], context.positions[part])
        alone = kernels.attention(pool, queries[part], keys, values, some, rule)
        np.testing.assert_array_equal(alone, whole[part])


def test_a_long_context_is_cut_the_same_for_a_token_alone_and_in_a_batch() -> None:
    """Past 8,192 positions splits get longer, so that there are never many."""
    tables, num_pages = scattered(8200)
    pool = kernels.worker_pool(3)
    keys, values = (filled_rows(WeightType.F16, tables, num_pages, [8200], 1, 16, seed) for seed in (1, 2))
    context = last_tokens(tables, [8200], [20])
    queries, rule = random_floats(20, 2, 16), AttentionRule(scale=0.3)
    assert_attends(pool, queries, keys, values, context, rule)
    whole = kernels.attention(pool, queries, keys, values, context, rule)
    for t in (0, 11, 12, 19):
        alone = PagedContext(tables, context.sequences[t : t + 1], context.positions[t : t + 1])
        np.testing.assert_array_equal(
            kernels.attention(pool, queries[t : t + 1], keys, values, alone, rule)[0], whole[t]
        )


# Zeros of both signs, halves of a step, the smallest and largest of 16 bits, and what is beyond them.
SPECIAL = [0.0, -0.0, 1 + 2**-11, 1 + 3 * 2**-11, -1 - 2**-8, 2**-24, 2**-25, 3 * 2**-25, -(2.0**-15), 6.1e-5]
SPECIAL += [65504.0, 65519.0, 65520.0, 1e6, -1e30, 3.4e38, 3.39e38, 1e-40, -1e-45, 2**-133, 127.5, 0.1]


@every_type
@pytest.mark.parametrize("length", [32, 64, 160])
def test_rows_are_stored_as_the_reference_stores_them(pool: WorkerPool, cache_type: WeightType, length: int) -> None:
    tables, num_pages = scattered(100, 70)
    context = last_tokens(tables, [100, 70], [66, 3])
    x = random_floats(69, 3, length) * np.float32(10) ** np.random.default_rng(1).integers(-9, 9, (69, 3, 1))
    x = x.astype(np.float32)
    x[5, 1, : len(SPECIAL)] = SPECIAL
    x[6] = 0
    got, want = (empty_rows(cache_type, num_pages, 3, length) for _ in range(2))
    kernels.store_rows(pool, got, context, x)
    reference.store_rows(want, context, x)
    np.testing.assert_array_equal(got.pages, want.pages)


@pytest.mark.parametrize("cache_type", TYPES[:3], ids=lambda t: t.name)
@pytest.mark.parametrize("length", [1, 7, 17, 33])
def test_an_odd_row_is_filled_up_with_zeros(pool: WorkerPool, cache_type: WeightType, length: int) -> None:
    tables, num_pages = scattered(2)
    context, x = last_tokens(tables, [2], [2]), random_floats(2, 2, length)
    got, want = (empty_rows(cache_type, num_pages, 2, length) for _ in range(2))
    kernels.store_rows(pool, got, context, x)
    reference.store_rows(want, context, x)
    np.testing.assert_array_equal(got.pages, want.pages)


@pytest.mark.parametrize("cache_type", TYPES[1:], ids=lambda t: t.name)
def test_finite_numbers_stay_finite_and_others_become_nan(pool: WorkerPool, cache_type: WeightType) -> None:
    tables, num_pages = scattered(3)
    context, x = last_tokens(tables, [3], [3]), random_floats(3, 1, 32)
    x[0, 0, 3], x[1, 0, 4], x[2, 0, 5] = 3e38, np.inf, np.nan
    rows = empty_rows(cache_type, num_pages, 1, 32)
    kernels.store_rows(pool, rows, context, x)
    stored = reference.cached_values(rows)[tables[0, 0], 0, :3]
    assert np.isfinite(stored[0]).all()
    assert np.isnan(stored[1, 4])
    assert np.isnan(stored[2, 5])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"queries": (1, 4, 16)}, "as long as keys"),
        ({"queries": (1, 3, 32)}, "multiple of key heads"),
        ({"queries": (2, 4, 32)}, "a position for each query"),
        ({"positions": [64]}, "past the pages"),
        ({"sequences": [1]}, "no sequence"),
        ({"page_tables": [[1]]}, "outside the cache"),
        ({"value_type": WeightType.BF16}, "one type"),
        ({"key_length": 100}, "too few bytes"),
    ],
)
def test_what_does_not_fit_is_refused_before_any_work(change: dict[str, object], message: str) -> None:
    case: dict[str, object] = {
        "queries": (1, 4, 32), "positions": [0], "sequences": [0], "page_tables": [[0]],
        "value_type": WeightType.F16, "key_length": 32,
    } | change  # fmt: skip
    keys = CachedRows(WeightType.F16, int(str(case["key_length"])), np.zeros((1, 2, PAGE_SIZE, 64), np.uint8))
    values = CachedRows(WeightType(case["value_type"]), 32, np.zeros((1, 2, PAGE_SIZE, 64), np.uint8))
    context = PagedContext(*(np.array(case[name], np.int32) for name in ("page_tables", "sequences", "positions")))
    shape = case["queries"]
    assert isinstance(shape, tuple)
    with pytest.raises(ValueError, match=message):
        kernels.attention(
            kernels.worker_pool(1), random_floats(*shape), keys, values, context, AttentionRule(scale=1.0)
        )


def test_blocks_are_whole_in_a_cached_row() -> None:
    with pytest.raises(ValueError, match="not a whole number of Q8_0 blocks"):
        cached_row_bytes(WeightType.Q8_0, 48)
