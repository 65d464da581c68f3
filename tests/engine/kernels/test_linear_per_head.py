"""A matrix for each head, against numpy."""

from __future__ import annotations

import numpy as np
import pytest
from gguf import GGMLQuantizationType
from gguf.quants import quantize

from ktdesk_engine import kernels
from ktdesk_engine.kernels import Weight, reference
from ktdesk_engine.quants.formats import WeightType


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
