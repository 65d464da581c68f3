"""A matrix for each head, against numpy."""

from __future__ import annotations

import numpy as np
import pytest
from gguf import GGMLQuantizationType
from gguf.quants import quantize

from ktdesk_engine import kernels
from ktdesk_engine.kernels import Weight, reference
from ktdesk_engine.kernels.pools import NEVER
from ktdesk_engine.quants.formats import WeightType, dequantize


def random_floats(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def quantized_heads(heads: int, rows: int, length: int) -> Weight:
    return Weight(WeightType.Q8_0, quantize(random_floats(heads, rows, length, seed=1), GGMLQuantizationType.Q8_0))


@pytest.mark.parametrize("isa", kernels.isas())
@pytest.mark.parametrize("rows", [1, 16, 33])
@pytest.mark.parametrize("tokens", [1, 2, 5])
def test_each_head_is_multiplied_with_its_own_matrix(isa: str, rows: int, tokens: int) -> None:
    weight, x = quantized_heads(3, rows, 64), random_floats(tokens, 3, 64)
    got = kernels.linear_per_head(kernels.worker_pool(2, isa), weight, x)
    np.testing.assert_allclose(got, reference.linear_per_head(weight, x), rtol=2e-5, atol=2e-5)


WAYS = [(isa, NEVER) for isa in kernels.isas(with_variants=True)]
WAYS += [("amx", 1)] if "amx" in kernels.isas() else []


@pytest.mark.parametrize(("isa", "min_tile_rows"), WAYS)
@pytest.mark.parametrize("rows", [1, 16, 33, 150])
@pytest.mark.parametrize("tokens", [1, 2, 17])
def test_packed_heads_compute_what_their_rows_do(isa: str, min_tile_rows: int, rows: int, tokens: int) -> None:
    pool = kernels.worker_pool(2, isa)
    pool.min_tile_rows = min_tile_rows
    weight, x = quantized_heads(3, rows, 64), random_floats(tokens, 3, 96)[..., 32:]
    got = kernels.linear_per_head(pool, kernels.pack(pool, weight), x)
    want = reference.linear_per_head(weight, x)
    # Activations of 15 bits; on tiles of 16, as weights.
    magnitudes = np.abs(x) @ np.ones(64)
    bound = magnitudes[..., None] * 2.0**-13 + 1e-5
    assert (np.abs(got - want) <= bound * np.abs(dequantize(weight.blocks, weight.type)).max()).all()


def test_vectors_may_be_parts_of_longer_heads_and_rows_parts_of_taller_ones() -> None:
    pool = kernels.worker_pool(2)
    weight, x = quantized_heads(3, 20, 64), random_floats(4, 3, 96)
    some_rows, some_values = Weight(weight.type, weight.blocks[:, 5:]), x[..., 32:]
    got = kernels.linear_per_head(pool, some_rows, some_values)
    copied = Weight(weight.type, some_rows.blocks.copy())
    np.testing.assert_array_equal(got, kernels.linear_per_head(pool, copied, some_values.copy()))


def test_a_tokens_result_does_not_depend_on_its_neighbours() -> None:
    pool = kernels.worker_pool(2)
    weight, x = quantized_heads(3, 50, 96), random_floats(7, 3, 96)
    together = kernels.linear_per_head(pool, weight, x)
    for t in range(7):
        np.testing.assert_array_equal(together[t], kernels.linear_per_head(pool, weight, x[t : t + 1])[0])


@pytest.mark.parametrize(("heads", "length"), [(2, 64), (3, 32)])
def test_vectors_that_do_not_fit_the_matrices_are_refused(heads: int, length: int) -> None:
    with pytest.raises(ValueError, match="x must be"):
        kernels.linear_per_head(kernels.worker_pool(1), quantized_heads(3, 4, 64), random_floats(1, heads, length))
