"""Weights on a device: their values, and their products with vectors, against the numpy reference."""

from __future__ import annotations

import numpy as np
import pytest
from random_blocks import random_rows, random_weight

torch = pytest.importorskip("torch", reason="the extra gpu is not installed")

from ktdesk_engine.backends.cuda import device_weights  # noqa: E402
from ktdesk_engine.backends.cuda.card_bytes import card_bytes  # noqa: E402
from ktdesk_engine.backends.cuda.device_weights import to_device  # noqa: E402
from ktdesk_engine.backends.cuda.forms import FORMS  # noqa: E402
from ktdesk_engine.backends.cuda.products import multiply, rows_of, unpacked  # noqa: E402
from ktdesk_engine.kernels import Weight, reference  # noqa: E402
from ktdesk_engine.quants.formats import BLOCKS, WeightType, dequantize  # noqa: E402

KEPT = [*FORMS, WeightType.F32, WeightType.F16, WeightType.BF16]
every_kept_type = pytest.mark.parametrize("weight_type", KEPT, ids=lambda t: t.name)


def row_length(weight_type: WeightType, short: int = 96) -> int:
    """Of few blocks, an odd number of runs where the type allows it."""
    return 768 if BLOCKS[weight_type].values == 256 else short


def some_weight(weight_type: WeightType, *outer: int, seed: int = 5) -> Weight:
    return random_weight(np.random.default_rng(seed), weight_type, (*outer, row_length(weight_type)), 0.1)


def vectors(count: int, weight: Weight, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((count, weight.row_length)).astype(np.float32)


def on(device: torch.device, array: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(array).to(device)


def assert_close(got: torch.Tensor, want: np.ndarray) -> None:
    """Within the rounding of a float32 sum of about so many products."""
    np.testing.assert_allclose(got.cpu().numpy(), want, rtol=0, atol=4e-6 * max(1.0, np.abs(want).max()))


@pytest.mark.filterwarnings("ignore:(invalid|overflow):RuntimeWarning")  # of the interpreter, at odd scales
@every_kept_type
def test_rows_on_the_device_have_exactly_the_values_of_the_file(device: torch.device, weight_type: WeightType) -> None:
    rows = random_rows(weight_type, 6, 2)
    want = dequantize(rows, weight_type)
    ids = torch.tensor([5, 0, 1, 2, 2, 3, 4], dtype=torch.int32, device=device)
    got = rows_of(to_device(weight_type, rows, device), ids).cpu().numpy()
    np.testing.assert_array_equal(got, want[ids.cpu().numpy()])


@pytest.mark.parametrize("weight_type", [t for t in WeightType if t not in KEPT], ids=lambda t: t.name)
def test_other_types_become_the_nearest_bfloat16(device: torch.device, weight_type: WeightType) -> None:
    weight = some_weight(weight_type, 3)
    want = torch.from_numpy(dequantize(weight.blocks, weight_type)).to(torch.bfloat16).float()
    got = rows_of(to_device(weight_type, weight.blocks, device), torch.arange(3, dtype=torch.int32, device=device))
    assert torch.equal(got.cpu(), want)


@every_kept_type
@pytest.mark.parametrize("tokens", [1, 3])
def test_products_match_the_reference(device: torch.device, weight_type: WeightType, tokens: int) -> None:
    weight = some_weight(weight_type, 17)
    x, bias = vectors(tokens, weight), np.random.default_rng(2).standard_normal(17).astype(np.float32)
    got = multiply(to_device(weight_type, weight.blocks, device), on(device, x), on(device, bias))
    assert_close(got, reference.linear(weight, x, bias))


@pytest.mark.parametrize("weight_type", [WeightType.Q4_K, WeightType.Q6_K, WeightType.F16], ids=lambda t: t.name)
def test_each_vector_meets_the_matrix_that_its_id_names(device: torch.device, weight_type: WeightType) -> None:
    weight, ids = some_weight(weight_type, 4, 5), [3, 0, -1, 3, 4, 1]
    x, factors = vectors(3, weight), np.array([1, 2, 3, 0.5], np.float32)
    bias = np.random.default_rng(2).standard_normal((4, 5)).astype(np.float32)
    got = multiply(
        to_device(weight_type, weight.blocks, device), on(device, x), on(device, bias),
        torch.tensor(ids, dtype=torch.int32, device=device), on(device, factors), x_share=2,
    )  # fmt: skip
    values = dequantize(weight.blocks, weight_type).astype(np.float64)
    for row, matrix in enumerate(ids):
        known = 0 <= matrix < 4
        want = factors[matrix] * (values[matrix] @ x[row // 2]) + bias[matrix] if known else np.zeros(5)
        assert_close(got[row], want)


@pytest.mark.parametrize("weight_type", [WeightType.Q5_K, WeightType.MXFP4, WeightType.BF16], ids=lambda t: t.name)
def test_a_vector_has_the_same_bits_alone_and_in_company(device: torch.device, weight_type: WeightType) -> None:
    weight = some_weight(weight_type, 9)
    matrices, x = to_device(weight_type, weight.blocks, device), on(device, vectors(16, weight))
    together = multiply(matrices, x)
    for row in (0, 7, 15):
        assert torch.equal(multiply(matrices, x[row : row + 1])[0], together[row])


@pytest.mark.parametrize("weight_type", [WeightType.Q4_0, WeightType.Q3_K, WeightType.F32], ids=lambda t: t.name)
def test_an_unpacked_matrix_is_rounded_to_bfloat16(device: torch.device, weight_type: WeightType) -> None:
    """To nearest, but by the interpreter, which cuts off."""
    weight = some_weight(weight_type, 2, 3)
    want = torch.from_numpy(dequantize(weight.blocks[1], weight_type))
    got = unpacked(to_device(weight_type, weight.blocks, device), 1).cpu()
    assert torch.all((got.float() - want).abs() <= want.abs() / (128 if device.type == "cpu" else 256))


def test_a_matrix_that_is_no_whole_array_is_laid_out_all_the_same(device: torch.device) -> None:
    weight = some_weight(WeightType.Q8_0, 3, 8)
    part = weight.blocks[:, 2:7]
    want = dequantize(np.ascontiguousarray(part), WeightType.Q8_0)[0]
    ids = torch.arange(5, dtype=torch.int32, device=device)
    np.testing.assert_array_equal(rows_of(to_device(WeightType.Q8_0, part, device), ids).cpu().numpy(), want)


@pytest.mark.parametrize("weight_type", list(WeightType), ids=lambda weight_type: weight_type.name)
def test_a_plan_counts_the_bytes_that_a_weight_takes(weight_type: WeightType) -> None:
    weight = random_weight(np.random.default_rng(0), weight_type, (3, 512), 0.1)
    matrices = to_device(weight.type, weight.blocks, torch.device("cpu"))
    assert card_bytes(weight_type, 3 * 512) == matrices.num_bytes


def test_where_no_more_memory_can_be_pinned_copies_go_another_way_and_it_is_said_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    honest, words = torch.empty, "CUDA error: out of memory"

    def full(*sizes: object, pin_memory: bool = False, **more: object) -> object:
        if pin_memory:
            raise RuntimeError(words)
        return honest(*sizes, **more)

    monkeypatch.setattr(torch, "empty", full)
    device_weights._tell_slow_copies.cache_clear()
    for _ in range(2):
        assert device_weights._staging((3, 5), is_pinned=True).shape == (3, 5)
    assert caplog.text.count("can be pinned") == 1
    words = "CUDA error: an illegal memory access was encountered"
    with pytest.raises(RuntimeError, match="illegal memory access"):
        device_weights._staging((3, 5), is_pinned=True)
