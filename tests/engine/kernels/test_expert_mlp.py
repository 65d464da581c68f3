"""Experts on vectors and on tiles: sizes around the edges of panels and tiles, and what stands between the weights."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ktdesk_engine import kernels
from ktdesk_engine.benchmark.random_weights import random_weight
from ktdesk_engine.kernels import Activation, ExpertMlp, ExpertWeight, Weight, WorkerPool, reference
from ktdesk_engine.kernels.pools import NEVER
from ktdesk_engine.quants.formats import WeightType

ISAS = kernels.isas(with_variants=True)
WAYS = [(isa, NEVER, False) for isa in ISAS]
WAYS += [("amx", rows, bfloat16) for rows in (1, 4) for bfloat16 in (False, True) if "amx" in ISAS]
"""An instruction set, from how many rows of an expert on it uses tiles, and whether these have bfloat16."""


@pytest.fixture(
    params=WAYS, ids=lambda way: f"{way[0]}-{'vectors' if way[1] == NEVER else way[1]}{'-bfloat16' * way[2]}"
)
def pool(request: pytest.FixtureRequest) -> WorkerPool:
    isa, min_tile_rows, rounds_to_bfloat16 = request.param
    pool = kernels.worker_pool(2, isa)
    pool.min_tile_rows = min_tile_rows
    pool.rounds_to_bfloat16 = rounds_to_bfloat16
    return pool


def tolerance(pool: WorkerPool) -> float:
    """Of the largest result: bfloat16 has eight bits, and activations are rounded twice."""
    return 3e-2 if pool.rounds_to_bfloat16 else 1e-3


def random_mlp(E: int, H: int, I: int, gate: WeightType, up: WeightType, down: WeightType) -> ExpertMlp:
    return ExpertMlp(
        ExpertWeight(random_weight(gate, E, I, H, seed=1)),
        ExpertWeight(random_weight(up, E, I, H, seed=2)),
        ExpertWeight(random_weight(down, E, H, I, seed=3)),
    )


def packed(pool: WorkerPool, mlp: ExpertMlp) -> ExpertMlp:
    def panels(weight: Weight) -> Weight:
        return kernels.pack(pool, weight) if kernels.has_panels(weight) else weight

    return mlp.with_weights(panels)


def random_routes(T: int, E: int, K: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(T)
    ids = np.stack([rng.permutation(E)[:K] for _ in range(T)]).astype(np.int32)
    return ids, rng.uniform(0.1, 1, (T, K)).astype(np.float32)


def random_tokens(T: int, H: int) -> np.ndarray:
    return np.random.default_rng(T).standard_normal((T, H)).astype(np.float32)


def assert_matches(pool: WorkerPool, mlp: ExpertMlp, x: np.ndarray, ids: np.ndarray, weights: np.ndarray) -> None:
    got = kernels.expert_mlp(pool, packed(pool, mlp), x, ids, weights)
    want = reference.expert_mlp(mlp, x, ids, weights)
    np.testing.assert_allclose(got, want, rtol=0, atol=tolerance(pool) * np.abs(want).max())


@pytest.mark.parametrize("tokens", [1, 15, 16, 17, 33, 70])
def test_all_tokens_on_one_expert_match_the_reference(pool: WorkerPool, tokens: int) -> None:
    mlp = random_mlp(3, 256, 96, WeightType.Q4_K, WeightType.Q4_K, WeightType.Q5_0)
    ids = np.full((tokens, 1), 1, np.int32)
    assert_matches(pool, mlp, random_tokens(tokens, 256), ids, np.ones((tokens, 1), np.float32))


@pytest.mark.parametrize(("H", "I"), [(32, 32), (96, 32), (32, 1408), (1408, 96)])
def test_any_lengths_of_whole_groups_match_the_reference(pool: WorkerPool, H: int, I: int) -> None:
    mlp = random_mlp(4, H, I, WeightType.Q8_0, WeightType.Q8_0, WeightType.Q4_0)
    assert_matches(pool, mlp, random_tokens(9, H), *random_routes(9, 4, 2))


@pytest.mark.parametrize(("H", "I"), [(17, 5), (40, 24), (64, 33)])
def test_rows_of_floats_of_any_length_match_the_reference(pool: WorkerPool, H: int, I: int) -> None:
    """Lengths that are no multiple of 32 have no tiles."""
    mlp = random_mlp(4, H, I, WeightType.F32, WeightType.F32, WeightType.F32)
    assert_matches(pool, mlp, random_tokens(9, H), *random_routes(9, 4, 2))


@pytest.mark.parametrize(("E", "K", "tokens"), [(1, 1, 5), (2, 2, 20), (40, 6, 11), (300, 4, 3)])
def test_few_and_many_experts_match_the_reference(pool: WorkerPool, E: int, K: int, tokens: int) -> None:
    mlp = random_mlp(E, 64, 32, WeightType.Q8_0, WeightType.Q8_0, WeightType.Q8_0)
    assert_matches(pool, mlp, random_tokens(tokens, 64), *random_routes(tokens, E, K))


@pytest.mark.parametrize(
    "types",
    [
        (WeightType.Q4_K, WeightType.Q6_K, WeightType.Q8_0),
        (WeightType.Q4_K, WeightType.F32, WeightType.IQ3_S),
        (WeightType.IQ2_XXS, WeightType.IQ2_XXS, WeightType.F16),
        (WeightType.BF16, WeightType.MXFP4, WeightType.TQ2_0),
    ],
    ids=lambda types: "-".join(weight_type.name for weight_type in types),
)
def test_each_weight_may_have_its_own_type(pool: WorkerPool, types: tuple[WeightType, ...]) -> None:
    mlp = random_mlp(4, 256, 256, *types)
    assert_matches(pool, mlp, random_tokens(9, 256), *random_routes(9, 4, 2))


@pytest.mark.parametrize("activation", list(Activation))
@pytest.mark.parametrize("weighs_inputs", [False, True])
def test_activations_scales_biases_and_weights_before_match_the_reference(
    pool: WorkerPool, activation: Activation, weighs_inputs: bool
) -> None:
    rng = np.random.default_rng(5)
    plain = random_mlp(4, 64, 96, WeightType.Q8_0, WeightType.Q8_0, WeightType.Q8_0)

    def dressed(part: ExpertWeight) -> ExpertWeight:
        bias = rng.standard_normal((4, part.weight.num_rows)).astype(np.float32)
        return replace(part, bias=bias, scale=rng.uniform(0.5, 2, 4).astype(np.float32))

    mlp = replace(
        plain,
        gate=dressed(plain.gate),
        up=dressed(plain.up),
        down=dressed(plain.down),
        activation=activation,
        limit=0.75,
        weighs_inputs=weighs_inputs,
    )
    assert_matches(pool, mlp, random_tokens(20, 64), *random_routes(20, 4, 2))


def test_activations_of_huge_values_do_not_overflow(pool: WorkerPool) -> None:
    eye = Weight(WeightType.F32, np.eye(32, dtype=np.float32)[None].view(np.uint8).reshape(1, 32, 128))
    mlp = ExpertMlp(ExpertWeight(eye), ExpertWeight(eye), ExpertWeight(eye))
    x = np.repeat(np.array([[-1e5, -200, 0, 200, 1e5]], np.float32), 7, axis=1)[:, :32]
    got = kernels.expert_mlp(pool, mlp, x, np.zeros((1, 1), np.int32), np.ones((1, 1), np.float32))
    is_integers = pool.min_tile_rows == 1 and not pool.rounds_to_bfloat16  # 200 * 200 is nothing beside 1e10
    np.testing.assert_allclose(got, np.where(x > 0, x * x, 0), rtol=3e-2, atol=1e6 if is_integers else 1e-30)


def test_phases_that_overlap_give_the_same_bits_as_phases_that_do_not(pool: WorkerPool) -> None:
    mlp = packed(pool, random_mlp(20, 256, 256, WeightType.Q4_K, WeightType.Q4_K, WeightType.Q6_K))
    x, routes = random_tokens(50, 256), random_routes(50, 20, 5)
    results = []
    for overlaps in (True, False):
        pool.overlaps_phases = overlaps
        results.append(kernels.expert_mlp(pool, mlp, x, *routes))
    np.testing.assert_array_equal(*results)


def test_the_number_of_threads_does_not_change_a_bit(pool: WorkerPool) -> None:
    mlp = packed(pool, random_mlp(20, 256, 256, WeightType.Q4_K, WeightType.Q4_K, WeightType.Q6_K))
    x, routes = random_tokens(50, 256), random_routes(50, 20, 5)
    want = kernels.expert_mlp(pool, mlp, x, *routes)
    for num_threads in (1, 3):
        other = kernels.worker_pool(num_threads, pool.isa)
        other.min_tile_rows, other.rounds_to_bfloat16 = pool.min_tile_rows, pool.rounds_to_bfloat16
        np.testing.assert_array_equal(kernels.expert_mlp(other, mlp, x, *routes), want)


@pytest.mark.parametrize("tokens", [2, 7, 15, 31])
def test_a_token_has_the_same_bits_alone_and_among_others(pool: WorkerPool, tokens: int) -> None:
    """As long as one kernel is used for every number of rows."""
    if pool.min_tile_rows not in (1, NEVER):
        pytest.skip("rows above and below a count go through different kernels")
    mlp = packed(pool, random_mlp(4, 256, 256, WeightType.Q4_K, WeightType.Q4_K, WeightType.Q6_K))
    x, (ids, weights) = random_tokens(tokens, 256), random_routes(tokens, 4, 2)
    together = kernels.expert_mlp(pool, mlp, x, ids, weights)
    alone = [kernels.expert_mlp(pool, mlp, x[t : t + 1], ids[t : t + 1], weights[t : t + 1]) for t in range(tokens)]
    np.testing.assert_array_equal(together, np.concatenate(alone))


@pytest.mark.parametrize("rows", [1, 15, 16, 17, 33, 200])
@pytest.mark.parametrize("tokens", [1, 17, 70])
def test_linear_matches_the_reference_on_vectors_and_tiles(pool: WorkerPool, rows: int, tokens: int) -> None:
    x, bias = random_tokens(tokens, 96), np.arange(rows, dtype=np.float32)
    for weight_type in (WeightType.Q5_1, WeightType.F32, WeightType.F16):
        weight = random_weight(weight_type, rows, 96, seed=4)
        panels = kernels.pack(pool, weight) if kernels.has_panels(weight) else weight
        got, want = kernels.linear(pool, panels, x, bias), reference.linear(weight, x, bias)
        np.testing.assert_allclose(got, want, rtol=0, atol=tolerance(pool) * np.abs(want).max())


needs_tiles = pytest.mark.skipif("amx" not in ISAS, reason="this machine has no tiles")


def tile_pool(*, bfloat16: bool = False) -> WorkerPool:
    pool = kernels.worker_pool(2, "amx")
    pool.min_tile_rows, pool.rounds_to_bfloat16 = 1, bfloat16
    return pool


def product_error(pool: WorkerPool, weight: Weight, x: np.ndarray) -> float:
    """The norm of what differs from the reference, by that of the reference."""
    panels = kernels.pack(pool, weight) if kernels.has_panels(weight) else weight
    want = reference.linear(weight, x).astype(np.float64)
    return float(np.linalg.norm(kernels.linear(pool, panels, x) - want) / np.linalg.norm(want))


@needs_tiles
@pytest.mark.parametrize("weight_type", list(WeightType), ids=lambda weight_type: weight_type.name)
@pytest.mark.parametrize("tokens", [5, 33, 100])
def test_tiles_of_integers_round_as_little_as_vectors(weight_type: WeightType, tokens: int) -> None:
    """Whatever the type and the number of blocks of rows, and where a block of 64 values is half empty."""
    pool = tile_pool()
    weight, x = random_weight(weight_type, 24, 256, seed=6), random_tokens(tokens, 256)
    assert product_error(pool, weight, x) < 2e-4
    if weight_type in (WeightType.Q4_0, WeightType.Q8_0, WeightType.F16, WeightType.MXFP4):
        assert product_error(pool, random_weight(weight_type, 24, 96, seed=6), x[:, :96].copy()) < 2e-4


@needs_tiles
def test_a_few_large_activations_do_not_drown_the_others() -> None:
    """They are in the upper byte, all others in the lower one, whose products are then added."""
    weight, x = random_weight(WeightType.Q4_K, 32, 512, seed=7), random_tokens(40, 512)
    x[:, 9] *= 300
    small = x.copy()
    small[:, 9] = 0
    pool = tile_pool()
    without_large = kernels.linear(pool, kernels.pack(pool, weight), x) - reference.linear(weight, x - small)
    want = reference.linear(weight, small)
    assert np.linalg.norm(without_large - want) < 0.01 * np.linalg.norm(want)
    vectors = kernels.worker_pool(2, "amx")
    assert (
        product_error(pool, weight, x)
        < product_error(vectors, weight, x)
        < product_error(tile_pool(bfloat16=True), weight, x)
    )


@needs_tiles
@pytest.mark.parametrize("blocks", [(0,), (1,), (2,), (3, 4), (0, 1, 2, 6), (0, 2, 4)])
def test_rows_with_large_values_change_no_bit_of_others(blocks: tuple[int, ...]) -> None:
    """Of seven blocks of rows some have a row that needs one more sum, so that other blocks go together."""
    pool = tile_pool()
    weight, x = random_weight(WeightType.Q5_K, 32, 256, seed=8), random_tokens(112, 256)
    panels = kernels.pack(pool, weight)
    with_large = x.copy()
    large = [16 * block + 3 for block in blocks]
    with_large[large, 7] = 1000
    got, want = kernels.linear(pool, panels, with_large), kernels.linear(pool, panels, x)
    np.testing.assert_array_equal(np.delete(got, large, axis=0), np.delete(want, large, axis=0))
    assert (got[large] != want[large]).any(axis=1).all()


@needs_tiles
@pytest.mark.parametrize("bfloat16", [False, True], ids=["integers", "bfloat16"])
@pytest.mark.parametrize(("tokens", "H"), [(1, 96), (17, 96), (40, 256)])
def test_tokens_stored_once_for_all_experts_give_the_bits_of_tokens_stored_for_one(
    bfloat16: bool, tokens: int, H: int
) -> None:
    """With one expert a token's row is stored where it is multiplied, with more it is copied there."""
    pool = tile_pool(bfloat16=bfloat16)
    mlp = packed(pool, random_mlp(3, H, 64, WeightType.Q8_0, WeightType.Q4_0, WeightType.Q8_0))
    x = random_tokens(tokens, H)
    ids, weights = random_routes(tokens, 3, 1)
    want = kernels.expert_mlp(pool, mlp, x, ids, weights)
    nothing = np.full_like(ids, -1)
    got = kernels.expert_mlp(pool, mlp, x, np.hstack([ids, nothing]), np.hstack([weights, weights]))
    np.testing.assert_array_equal(got, want)


@needs_tiles
@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_what_is_no_finite_number_stays_none_on_tiles(value: float) -> None:
    pool = tile_pool()
    weight, x = random_weight(WeightType.Q4_K, 32, 256, seed=9), random_tokens(20, 256)
    x[11, 200] = value
    got = kernels.linear(pool, kernels.pack(pool, weight), x)
    assert not np.isfinite(got[11]).any()
    assert np.isfinite(np.delete(got, 11, axis=0)).all()


@needs_tiles
@pytest.mark.parametrize("weight_type", [WeightType.Q4_K, WeightType.Q4_1, WeightType.Q6_K, WeightType.F16])
def test_rows_of_zeros_give_zeros_on_tiles(weight_type: WeightType) -> None:
    pool = tile_pool()
    weight = random_weight(weight_type, 32, 256, seed=10)
    zeros = Weight(weight_type, np.zeros_like(weight.blocks))
    x = random_tokens(20, 256)
    assert not kernels.linear(pool, kernels.pack(pool, zeros), x).any()
    assert not kernels.linear(pool, kernels.pack(pool, weight), 0 * x).any()
