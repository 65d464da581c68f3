import numpy as np
import pytest
from gguf import GGMLQuantizationType
from gguf import quants as oracle
from gguf.constants import GGML_QUANT_SIZES
from random_blocks import assert_same_floats, random_rows

from ktdesk_engine.quants.formats import BLOCKS, WeightType, dequantize, row_bytes

RNG_SEED = 20

every_type = pytest.mark.parametrize("weight_type", WeightType, ids=lambda weight_type: weight_type.name)


def oracle_dequantize(rows: np.ndarray, weight_type: WeightType) -> np.ndarray:
    with np.errstate(over="ignore", invalid="ignore"):
        values: np.ndarray = oracle.dequantize(rows, GGMLQuantizationType(weight_type))
    return values


def block(*parts: np.ndarray) -> np.ndarray:
    return np.concatenate([part.view(np.uint8) for part in parts])


def half(value: float) -> np.ndarray:
    return np.array([value], dtype=np.float16)


@every_type
def test_numbers_and_sizes_are_those_of_the_format(weight_type: WeightType) -> None:
    assert GGMLQuantizationType(weight_type).name == weight_type.name
    assert GGML_QUANT_SIZES[GGMLQuantizationType(weight_type)] == BLOCKS[weight_type]


@every_type
def test_random_blocks_read_as_the_gguf_package_reads_them(weight_type: WeightType) -> None:
    rows = random_rows(weight_type, num_rows=200, blocks_per_row=3)
    got = dequantize(rows, weight_type)
    assert got.dtype == np.float32
    assert_same_floats(got, oracle_dequantize(rows, weight_type))
    assert np.isfinite(got).mean() > 0.5


@every_type
def test_leading_dimensions_are_kept(weight_type: WeightType) -> None:
    rows = random_rows(weight_type, num_rows=12, blocks_per_row=2)
    experts = dequantize(rows.reshape(3, 4, -1), weight_type)
    assert experts.shape == (3, 4, 2 * BLOCKS[weight_type].values)
    assert_same_floats(experts.reshape(12, -1), dequantize(rows, weight_type))
    assert_same_floats(experts[2, 3], dequantize(rows[11], weight_type))


@every_type
def test_no_rows_give_no_rows(weight_type: WeightType) -> None:
    nothing = np.empty((0, 2 * BLOCKS[weight_type].bytes), dtype=np.uint8)
    assert dequantize(nothing, weight_type).shape == (0, 2 * BLOCKS[weight_type].values)


@every_type
def test_rows_may_be_unaligned_strided_and_read_only(weight_type: WeightType) -> None:
    rows = random_rows(weight_type, num_rows=6, blocks_per_row=1)
    buffer = np.zeros((6, rows.shape[1] + 3), dtype=np.uint8)
    buffer[:, 1:-2] = rows
    buffer.flags.writeable = False
    assert_same_floats(dequantize(buffer[::2, 1:-2], weight_type), dequantize(rows[::2], weight_type))


def test_a_q4_0_nibble_counts_from_minus_eight() -> None:
    nibbles = np.arange(16, dtype=np.uint8)
    got = dequantize(block(half(2), nibbles | (15 - nibbles) << 4), WeightType.Q4_0)
    np.testing.assert_array_equal(got[:16], 2.0 * np.arange(-8, 8))
    np.testing.assert_array_equal(got[16:], 2.0 * np.arange(7, -9, -1))


def test_a_q5_1_value_takes_its_fifth_bit_from_the_word_before() -> None:
    fifth = np.array([1 << 3 | 1 << 31], dtype=np.uint32)
    got = dequantize(block(half(0.5), half(10), fifth, np.zeros(16, np.uint8)), WeightType.Q5_1)
    want = np.full(32, 10.0)
    want[[3, 31]] = 10 + 0.5 * 16
    np.testing.assert_array_equal(got, want)


def test_a_q4_k_block_scales_each_32_values_and_takes_their_min_off() -> None:
    scales, mins = np.arange(1, 9) * 7, np.arange(8, 0, -1) * 5  # all above 31 use their upper bits
    packed = np.zeros(12, dtype=np.uint8)
    packed[0:4] = scales[:4] | scales[4:] >> 4 << 6
    packed[4:8] = mins[:4] | mins[4:] >> 4 << 6
    packed[8:12] = scales[4:] & 15 | (mins[4:] & 15) << 4
    got = dequantize(block(half(1), half(2), packed, np.full(128, 0x31, np.uint8)), WeightType.Q4_K)
    np.testing.assert_array_equal(got, np.repeat(scales * [1, 3, 1, 3, 1, 3, 1, 3] - 2 * mins, 32))


def test_a_mxfp4_block_is_a_power_of_two_times_4_bit_floats() -> None:
    codes = np.arange(16, dtype=np.uint8)
    got = dequantize(block(np.array([127 + 3], np.uint8), codes | codes << 4), WeightType.MXFP4)
    positive = [0, 0.5, 1, 1.5, 2, 3, 4, 6]
    np.testing.assert_array_equal(got[:16], 8 * np.array(positive + [-x for x in positive]))
    np.testing.assert_array_equal(got[16:], got[:16])


def test_ternary_bytes_round_trip_through_the_packages_quantizer() -> None:
    digits = np.random.default_rng(RNG_SEED).integers(-1, 2, (5, 512)).astype(np.float32)
    for weight_type in (WeightType.TQ1_0, WeightType.TQ2_0):
        rows = oracle.quantize(digits, GGMLQuantizationType(weight_type))
        np.testing.assert_array_equal(dequantize(rows, weight_type), digits)


def test_infinite_and_missing_scales_are_passed_on_without_a_warning() -> None:
    quants = np.array([0, 1] * 16, dtype=np.int8)
    rows = np.stack([block(half(scale), quants) for scale in (np.inf, np.nan)])
    got = dequantize(rows, WeightType.Q8_0)
    assert np.isnan(got[0, ::2]).all()
    assert np.isposinf(got[0, 1::2]).all()
    assert np.isnan(got[1]).all()


def test_row_bytes_counts_whole_blocks() -> None:
    assert row_bytes(WeightType.Q4_K, 2048) == 8 * 144
    assert row_bytes(WeightType.Q8_0, 96) == 3 * 34
    assert row_bytes(WeightType.F16, 5) == 10
    assert row_bytes(WeightType.Q8_0, 0) == 0


@pytest.mark.parametrize("num_values", [-32, -1, 1, 31, 33])
def test_row_bytes_refuses_a_part_of_a_block(num_values: int) -> None:
    with pytest.raises(ValueError, match=f"a row of {num_values} values .* Q4_1 blocks \\(32 values each\\)"):
        row_bytes(WeightType.Q4_1, num_values)


def test_dequantize_refuses_what_is_not_whole_blocks_of_bytes() -> None:
    with pytest.raises(ValueError, match=r"a row of 35 bytes .* Q8_0 blocks \(34 bytes each\)"):
        dequantize(np.zeros(35, dtype=np.uint8), WeightType.Q8_0)
    with pytest.raises(ValueError, match="must be uint8, not int8"):
        dequantize(np.zeros(34, dtype=np.int8), WeightType.Q8_0)
