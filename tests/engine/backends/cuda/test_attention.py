"""Attention over pages on a device, and writing into them, against the numpy reference."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the extra gpu is not installed")

from ktdesk_engine.backends.cuda import attention as paged  # noqa: E402
from ktdesk_engine.kernels import AttentionRule, CachedRows, PagedContext, cached_row_bytes, reference  # noqa: E402
from ktdesk_engine.quants.formats import WeightType  # noqa: E402

PAGE_SIZE = 64
LENGTHS = [5, 200]
"""Of two sequences."""
TYPES = [WeightType.F32, WeightType.F16, WeightType.BF16, WeightType.Q8_0]
every_type = pytest.mark.parametrize("cache_type", TYPES, ids=lambda t: t.name)
ERRORS = {WeightType.F32: 1e-5, WeightType.F16: 3e-3, WeightType.BF16: 2e-2, WeightType.Q8_0: 1e-5}
"""16-bit caches round queries and shares to their type."""


def floats(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def context(positions: list[list[int]]) -> PagedContext:
    """So many positions of each sequence; pages in no order, one of them nobody's."""
    tables = np.array([[3, 0, 0, 0], [5, 1, 4, 2]], np.int32)
    sequences = np.repeat(np.arange(2), [len(of_one) for of_one in positions]).astype(np.int32)
    return PagedContext(tables, sequences, np.concatenate(positions).astype(np.int32))


ALL = [list(range(length)) for length in LENGTHS]


def filled(cache_type: WeightType, heads: int, length: int, seed: int) -> CachedRows:
    """What was never written is NaN: it must not reach a result."""
    pages = np.full((6, heads, PAGE_SIZE, cached_row_bytes(cache_type, length)), 0xFF, np.uint8)
    rows = CachedRows(cache_type, length, pages)
    reference.store_rows(rows, context(ALL), floats(sum(LENGTHS), heads, length, seed=seed))
    return rows


def on(device: torch.device, rows: CachedRows) -> paged.DeviceRows:
    return paged.DeviceRows(rows.type, rows.length, torch.from_numpy(rows.pages).to(device))


def device_context(device: torch.device, found: PagedContext) -> paged.DeviceContext:
    return paged.DeviceContext(*(torch.from_numpy(ids).to(device) for ids in found.as_tuple))


def assert_attends(
    device: torch.device, num_heads: int, keys: CachedRows, values: CachedRows, rule: AttentionRule,
    positions: list[list[int]], tolerance: float,
) -> None:  # fmt: skip
    of_batch = context(positions)
    queries = floats(len(of_batch.positions), num_heads, keys.length, seed=9)
    device_keys = on(device, keys)
    in_keys = values.pages is keys.pages
    device_values = paged.DeviceRows(values.type, values.length, device_keys.pages) if in_keys else on(device, values)
    sinks = None if rule.sinks is None else torch.from_numpy(rule.sinks).to(device)
    got = paged.attention(
        torch.from_numpy(queries).to(device), device_keys, device_values, device_context(device, of_batch),
        paged.DeviceRule(rule.scale, rule.window, rule.soft_cap, sinks),
    )  # fmt: skip
    want = reference.attention(queries, keys, values, of_batch, rule)
    assert got.shape == want.shape
    assert np.abs(got.cpu().numpy() - want).max() < tolerance


FEW = [[4], [63, 64, 199]]
MANY = [[3, 4], list(range(180, 200))]


@every_type
@pytest.mark.parametrize("positions", [FEW, MANY], ids=["few", "many"])
def test_query_heads_share_key_heads(device: torch.device, cache_type: WeightType, positions: list[list[int]]) -> None:
    keys, values = filled(cache_type, 2, 96, 1), filled(cache_type, 2, 32, 2)
    assert_attends(device, 6, keys, values, AttentionRule(0.1), positions, ERRORS[cache_type])


@pytest.mark.parametrize("positions", [FEW, MANY], ids=["few", "many"])
@pytest.mark.parametrize(
    "rule",
    [
        AttentionRule(0.2, window=70),
        AttentionRule(0.2, window=1),
        AttentionRule(0.2, soft_cap=2.0),
        AttentionRule(0.2, window=9, sinks=np.array([0.5, -20, 3, 30], np.float32)),
        AttentionRule(0.2, soft_cap=2.0, sinks=np.array([0.5, -20, 3, 1], np.float32)),
    ],
    ids=["window", "window of one", "soft cap", "sinks", "sinks and soft cap"],
)
def test_windows_soft_caps_and_sinks(device: torch.device, rule: AttentionRule, positions: list[list[int]]) -> None:
    keys, values = filled(WeightType.F32, 2, 32, 1), filled(WeightType.F32, 2, 32, 2)
    assert_attends(device, 4, keys, values, rule, positions, 1e-5)


@every_type
@pytest.mark.parametrize("heads", [3, 20])
def test_latent_values_are_the_beginning_of_the_keys(device: torch.device, cache_type: WeightType, heads: int) -> None:
    keys = filled(cache_type, 1, 96, 1)
    values = CachedRows(cache_type, 64, keys.pages)
    assert_attends(device, heads, keys, values, AttentionRule(0.1), FEW, ERRORS[cache_type])


def test_a_value_that_is_a_part_of_the_first_piece_is_no_piece_of_its_own(device: torch.device) -> None:
    keys = filled(WeightType.F32, 1, 96, 1)
    assert_attends(device, 2, keys, CachedRows(WeightType.F32, 48, keys.pages), AttentionRule(0.1), FEW, 1e-5)


@every_type
@pytest.mark.parametrize("length", [32, 64])
def test_rows_are_stored_with_the_bytes_of_the_reference(
    device: torch.device, cache_type: WeightType, length: int
) -> None:
    x = floats(4, 2, length) * np.float32(1000)
    x[0, 0, :4] = [1e6, -1e6, 0, 1e-9]
    rows = CachedRows(cache_type, length, np.zeros((6, 2, PAGE_SIZE, cached_row_bytes(cache_type, length)), np.uint8))
    device_rows = on(device, rows)
    paged.store_rows(device_rows, device_context(device, context(FEW)), torch.from_numpy(x).to(device))
    reference.store_rows(rows, context(FEW), x)
    np.testing.assert_array_equal(device_rows.pages.cpu().numpy(), rows.pages)
