"""Packing is the same on every instruction set, and sees each block whose scale is no finite number."""

from __future__ import annotations

import math

import numpy as np
import pytest
from random_blocks import random_weight, set_scales

from ktdesk_engine import kernels
from ktdesk_engine.kernels import BadBlockError, Blocks, Source, Weight
from ktdesk_engine.kernels import packing as packing_steps
from ktdesk_engine.quants.formats import BLOCKS, WeightType, row_bytes

ISAS = kernels.isas(with_variants=True)
PANEL_TYPES = [
    weight_type
    for weight_type in WeightType
    if kernels.has_panels(Weight(weight_type, np.zeros((1, row_bytes(weight_type, 256)), np.uint8)))
]


def weight_of(weight_type: WeightType, *shape: int) -> Weight:
    return random_weight(np.random.default_rng(0), weight_type, shape, 0.1)


def row_length(weight_type: WeightType, num_groups: int) -> int:
    return num_groups * max(32, BLOCKS[weight_type].values)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("weight_type", PANEL_TYPES, ids=lambda t: t.name)
@pytest.mark.parametrize(("rows", "groups"), [(1, 1), (15, 2), (16, 3), (33, 5)])
def test_vectors_pack_what_plain_code_packs(isa: str, weight_type: WeightType, rows: int, groups: int) -> None:
    weight = weight_of(weight_type, 3, rows, row_length(weight_type, groups))
    want = kernels.pack(kernels.worker_pool(1, "scalar"), weight)
    got = kernels.pack(kernels.worker_pool(2, isa), weight)
    np.testing.assert_array_equal(got.blocks, want.blocks)


@pytest.mark.parametrize("step_bytes", [1, 5000, 20_000])
def test_steps_do_not_change_what_is_packed(step_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    pool = kernels.worker_pool(2)
    for weight in (weight_of(WeightType.Q4_K, 100, 512), weight_of(WeightType.Q4_K, 7, 33, 256)):
        want = kernels.pack(pool, weight)
        monkeypatch.setattr(packing_steps, "STEP_BYTES", step_bytes)
        ahead: list[Blocks] = []
        read: list[Blocks] = []
        got = kernels.pack(pool, weight, Source(ahead.append, read.append))
        monkeypatch.undo()
        np.testing.assert_array_equal(got.blocks, want.blocks)
        assert sum(rows.nbytes for rows in read) == weight.blocks.nbytes
        assert [rows.ctypes.data for rows in ahead] == [rows.ctypes.data for rows in read]


def test_parts_of_taller_matrices_are_packed_where_they_lie() -> None:
    pool, whole = kernels.worker_pool(2), weight_of(WeightType.Q5_K, 4, 48, 256)
    part = Weight(whole.type, whole.blocks[:, 16:])
    copied = Weight(whole.type, part.blocks.copy())
    np.testing.assert_array_equal(kernels.pack(pool, part).blocks, kernels.pack(pool, copied).blocks)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("weight_type", WeightType, ids=lambda t: t.name)
def test_a_scale_that_is_no_finite_number_is_found_where_it_is(weight_type: WeightType, bad: float) -> None:
    """The first of two, at every place of a block in a row."""
    pool = kernels.worker_pool(2)
    weight = weight_of(weight_type, 2, 40, row_length(weight_type, 3))
    kernels.check(pool, weight)
    blocks = weight.blocks.reshape(2, 40, -1, BLOCKS[weight_type].bytes)
    for matrix, row, index in ((0, 0, 0), (0, 39, 2), (1, 17, 1)):
        damaged = blocks.copy()
        set_scales(weight_type, damaged[1, 39, -1], bad)
        set_scales(weight_type, damaged[matrix, row, index], bad)
        place = damaged[matrix, row, index].ctypes.data
        bad_weight = Weight(weight_type, damaged.reshape(weight.blocks.shape))
        looks = [kernels.check, kernels.pack] if kernels.has_panels(weight) else [kernels.check]
        for look in looks:
            with pytest.raises(BadBlockError) as caught:
                look(pool, bad_weight)
            assert caught.value.address == place


@pytest.mark.parametrize("weight_type", [WeightType.Q4_1, WeightType.Q5_1, WeightType.Q2_K, WeightType.Q4_K], ids=str)
def test_a_min_that_is_no_finite_number_is_found_too(weight_type: WeightType) -> None:
    weight = weight_of(weight_type, 16, row_length(weight_type, 2))
    min_at = 82 if weight_type is WeightType.Q2_K else 2
    weight.blocks[3, min_at : min_at + 2] = np.array([np.inf], np.float16).view(np.uint8)
    with pytest.raises(BadBlockError):
        kernels.pack(kernels.worker_pool(1), weight)


def test_codes_of_any_bits_are_no_damage() -> None:
    """Bytes that would be no number as a float16, but where no float16 is."""
    weight = weight_of(WeightType.Q4_K, 16, 512)
    weight.blocks.reshape(16, 2, -1)[..., 4:] = 0xFF
    kernels.check(kernels.worker_pool(1), weight)
