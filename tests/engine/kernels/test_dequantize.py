"""The native unpacking of rows is bit for bit that of `quants`, on every instruction set."""

import numpy as np
import pytest
from gguf import GGMLQuantizationType
from gguf import quants as oracle
from random_blocks import SINGLE_VALUES, assert_same_floats, random_rows

from ktdesk_engine import kernels
from ktdesk_engine.kernels import Weight, _kernels
from ktdesk_engine.kernels._kernels import WorkerPool
from ktdesk_engine.quants import formats as quants
from ktdesk_engine.quants.formats import WeightType

ALIGNMENTS = 64

every_type = pytest.mark.parametrize("weight_type", WeightType, ids=lambda weight_type: weight_type.name)


@pytest.fixture(params=kernels.isas())
def pool(request: pytest.FixtureRequest) -> WorkerPool:
    return kernels.worker_pool(2, isa=request.param)


def starting_at(alignment: int, rows: np.ndarray) -> np.ndarray:
    """A copy of rows whose address modulo 64 is `alignment`."""
    buffer = np.empty(rows.nbytes + 2 * ALIGNMENTS, dtype=np.uint8)
    start = (alignment - buffer.ctypes.data) % ALIGNMENTS
    copy = buffer[start : start + rows.nbytes].reshape(rows.shape)
    copy[:] = rows
    return copy


@every_type
def test_random_blocks_read_as_the_reference_reads_them(pool: WorkerPool, weight_type: WeightType) -> None:
    rows = random_rows(weight_type, num_rows=500, blocks_per_row=3)  # meets all 2048 entries of a codebook
    got = kernels.dequantize(pool, Weight(weight_type, rows))
    assert_same_floats(got, quants.dequantize(rows, weight_type))


@every_type
def test_random_blocks_read_as_the_gguf_package_reads_them(pool: WorkerPool, weight_type: WeightType) -> None:
    rows = random_rows(weight_type, num_rows=100, blocks_per_row=2)
    with np.errstate(over="ignore", invalid="ignore"):
        want = oracle.dequantize(rows, GGMLQuantizationType(weight_type))
    assert_same_floats(kernels.dequantize(pool, Weight(weight_type, rows)), want)


@every_type
def test_rows_may_start_at_any_address(pool: WorkerPool, weight_type: WeightType) -> None:
    rows = random_rows(weight_type, num_rows=5, blocks_per_row=3)
    want = quants.dequantize(rows, weight_type)
    for alignment in range(ALIGNMENTS):
        moved = starting_at(alignment, rows)
        assert moved.ctypes.data % ALIGNMENTS == alignment
        assert_same_floats(kernels.dequantize(pool, Weight(weight_type, moved)), want)


@every_type
def test_nothing_is_written_beside_the_row(pool: WorkerPool, weight_type: WeightType) -> None:
    rows = random_rows(weight_type, num_rows=3, blocks_per_row=5)[2:]
    want = quants.dequantize(rows, weight_type)
    guarded = np.full((1, want.shape[1] + 32), 77, dtype=np.float32)
    _kernels.dequantize(pool, int(weight_type), rows, guarded[:, 16:-16])
    assert_same_floats(guarded[:, 16:-16], want)
    assert (guarded[:, :16] == 77).all()
    assert (guarded[:, -16:] == 77).all()


@pytest.mark.parametrize("weight_type", SINGLE_VALUES, ids=lambda weight_type: weight_type.name)
def test_rows_of_single_values_may_have_any_length(pool: WorkerPool, weight_type: WeightType) -> None:
    for length in range(1, 34):
        rows = random_rows(weight_type, num_rows=3, blocks_per_row=length)
        got = kernels.dequantize(pool, Weight(weight_type, rows))
        assert_same_floats(got, quants.dequantize(rows, weight_type))


def test_every_float16_reads_right(pool: WorkerPool) -> None:
    halves = np.arange(1 << 16, dtype=np.uint16)
    row = halves.view(np.uint8)[None]
    with np.errstate(invalid="ignore"):
        want = halves.view(np.float16).astype(np.float32)
    assert_same_floats(kernels.dequantize(pool, Weight(WeightType.F16, row))[0], want)


def test_every_float16_scale_reads_right(pool: WorkerPool) -> None:
    blocks = np.empty((1 << 16, 34), dtype=np.uint8)
    blocks[:, :2] = np.arange(1 << 16, dtype=np.uint16).view(np.uint8).reshape(-1, 2)
    blocks[:, 2:] = np.arange(32) * 8
    got = kernels.dequantize(pool, Weight(WeightType.Q8_0, blocks))
    assert_same_floats(got, quants.dequantize(blocks, WeightType.Q8_0))


def test_every_power_of_two_of_mxfp4_reads_right(pool: WorkerPool) -> None:
    codes = np.arange(16, dtype=np.uint8)
    blocks = np.empty((256, 17), dtype=np.uint8)
    blocks[:, 0] = np.arange(256)
    blocks[:, 1:] = codes | (15 - codes) << 4
    got = kernels.dequantize(pool, Weight(WeightType.MXFP4, blocks))
    assert_same_floats(got, quants.dequantize(blocks, WeightType.MXFP4))


def test_numbers_between_the_types_are_refused() -> None:
    pool = kernels.worker_pool(1)
    blocks, out = np.zeros((1, 256), dtype=np.uint8), np.zeros((1, 256), dtype=np.float32)
    for number in sorted(set(range(-1, 45)) - {int(weight_type) for weight_type in WeightType}):
        with pytest.raises(ValueError, match="no kernel reads this weight type"):
            _kernels.dequantize(pool, number, blocks, out)
