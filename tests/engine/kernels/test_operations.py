"""Every operation of the extension against the numpy reference, on every instruction set of this machine."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest

from ktdesk_engine import kernels
from ktdesk_engine.kernels import (
    Activation,
    ExpertMlp,
    ExpertWeight,
    RopePairing,
    Weight,
    WorkerPool,
    reference,
)
from ktdesk_engine.quants.formats import WeightType, row_bytes


@pytest.fixture(params=kernels.isas())
def pool(request: pytest.FixtureRequest) -> Iterator[WorkerPool]:
    return kernels.worker_pool(2, request.param)


def random_floats(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def float_weight(*shape: int, seed: int = 1) -> Weight:
    values = random_floats(*shape, seed=seed) / np.float32(np.sqrt(shape[-1]))
    return Weight(WeightType.F32, values.view(np.uint8))


def quantized_weight(*shape: int, seed: int = 1) -> Weight:
    """Q8_0 with small float16 scales."""
    rng = np.random.default_rng(seed)
    blocks = rng.integers(0, 256, (*shape[:-1], shape[-1] // 32, 34), dtype=np.uint8)
    blocks[..., :2] = np.frombuffer(np.float16(0.01 / np.sqrt(shape[-1])).tobytes(), np.uint8)
    return Weight(WeightType.Q8_0, blocks.reshape(*shape[:-1], row_bytes(WeightType.Q8_0, shape[-1])))


def assert_close(got: np.ndarray, want: np.ndarray) -> None:
    """Within the rounding of a float32 sum."""
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("rows", [1, 3, 15, 16, 17, 33])
@pytest.mark.parametrize("length", [32, 96, 1408])
@pytest.mark.parametrize("tokens", [1, 2, 7])
def test_linear_matches_reference(pool: WorkerPool, rows: int, length: int, tokens: int) -> None:
    weight, x, bias = (
        quantized_weight(rows, length),
        random_floats(tokens, length),
        random_floats(rows, seed=2),
    )
    assert_close(kernels.linear(pool, weight, x, bias), reference.linear(weight, x, bias))


@pytest.mark.parametrize("length", [1, 5, 8, 13, 16, 31, 100])
def test_linear_takes_rows_of_any_length_and_alignment(pool: WorkerPool, length: int) -> None:
    weight = float_weight(9, length)
    buffer = np.zeros(weight.blocks.size + 1, np.uint8)
    shifted = buffer[1:].reshape(weight.blocks.shape)
    shifted[:] = weight.blocks
    x = random_floats(3, length)
    want = reference.linear(weight, x)
    assert_close(kernels.linear(pool, weight, x), want)
    assert_close(kernels.linear(pool, Weight(WeightType.F32, shifted), x), want)


def test_a_tokens_result_does_not_depend_on_its_neighbours(pool: WorkerPool) -> None:
    weight, x = quantized_weight(50, 96), random_floats(13, 96)
    together = kernels.linear(pool, weight, x)
    for t in range(13):
        np.testing.assert_array_equal(together[t], kernels.linear(pool, weight, x[t : t + 1])[0])


def test_the_number_of_threads_does_not_change_a_result() -> None:
    weight, x = quantized_weight(200, 96), random_floats(5, 96)
    results = [kernels.linear(kernels.worker_pool(threads), weight, x) for threads in (1, 2, 5)]
    np.testing.assert_array_equal(results[0], results[1])
    np.testing.assert_array_equal(results[0], results[2])


def test_get_rows_matches_reference(pool: WorkerPool) -> None:
    weight, ids = quantized_weight(40, 64), np.array([0, 39, 7, 7], np.int32)
    np.testing.assert_array_equal(kernels.get_rows(pool, weight, ids), reference.get_rows(weight, ids))


@pytest.mark.parametrize("activation", list(Activation))
@pytest.mark.parametrize(("experts", "used", "tokens"), [(1, 1, 1), (8, 2, 1), (8, 2, 40), (300, 4, 3), (4, 4, 9)])
def test_expert_mlp_matches_reference(
    pool: WorkerPool, activation: Activation, experts: int, used: int, tokens: int
) -> None:
    H, I = 64, 96
    rng = np.random.default_rng(5)
    mlp = ExpertMlp(
        gate=ExpertWeight(float_weight(experts, I, H, seed=1), 5 * random_floats(experts, I, seed=2)),
        up=ExpertWeight(quantized_weight(experts, I, H, seed=3), 5 * random_floats(experts, I, seed=4)),
        down=ExpertWeight(quantized_weight(experts, H, I, seed=5)),
        activation=activation,
    )
    ids = np.array([rng.permutation(experts)[:used] for _ in range(tokens)], np.int32)
    weights, x = random_floats(tokens, used, seed=6), random_floats(tokens, H, seed=7)
    assert_close(kernels.expert_mlp(pool, mlp, x, ids, weights), reference.expert_mlp(mlp, x, ids, weights))


def test_expert_mlp_takes_all_tokens_on_one_expert_and_the_halves_of_a_merged_weight(
    pool: WorkerPool,
) -> None:
    H, I, E = 32, 64, 3
    merged = quantized_weight(E, 2 * I, H)
    mlp = ExpertMlp(
        gate=ExpertWeight(Weight(merged.type, merged.blocks[:, :I])),
        up=ExpertWeight(Weight(merged.type, merged.blocks[:, I:])),
        down=ExpertWeight(quantized_weight(E, H, I, seed=2)),
    )
    ids, weights, x = np.full((20, 1), 1, np.int32), np.ones((20, 1), np.float32), random_floats(20, H)
    assert_close(kernels.expert_mlp(pool, mlp, x, ids, weights), reference.expert_mlp(mlp, x, ids, weights))


def test_rms_norm_matches_reference(pool: WorkerPool) -> None:
    x, weight = 100 * random_floats(5, 3, 40), random_floats(40, seed=1)
    assert_close(kernels.rms_norm(pool, x, weight, 1e-6), reference.rms_norm(x, weight, 1e-6))


def test_rms_norm_in_place_leaves_the_other_columns(pool: WorkerPool) -> None:
    x, weight = random_floats(5, 40), random_floats(24, seed=1)
    before = x.copy()
    kernels.rms_norm_in_place(pool, x[:, :24], weight, 1e-6)
    np.testing.assert_array_equal(x[:, :24], kernels.rms_norm(pool, before[:, :24].copy(), weight, 1e-6))
    np.testing.assert_array_equal(x[:, 24:], before[:, 24:])


@pytest.mark.parametrize("shape", [(1, 1), (1, 33), (7, 2048)])
def test_add_has_the_bits_of_numpy(pool: WorkerPool, shape: tuple[int, int]) -> None:
    x, y = random_floats(*shape), random_floats(*shape, seed=1)
    np.testing.assert_array_equal(kernels.add(pool, x, y), x + y)


@pytest.mark.parametrize("shape", [(1, 1), (1, 33), (7, 2048)])
def test_gate_matches_reference(pool: WorkerPool, shape: tuple[int, int]) -> None:
    x, gates = random_floats(*shape), random_floats(shape[0], 1, seed=1)
    assert_close(kernels.gate(pool, x, gates), reference.gate(x, gates))


def test_a_gate_far_from_zero_is_open_or_shut(pool: WorkerPool) -> None:
    x = np.ones((4, 3), np.float32)
    gates = np.array([[1e4], [-1e4], [100], [-100]], np.float32)
    np.testing.assert_array_equal(kernels.gate(pool, x, gates)[:, 0].round(6), [1, 0, 1, 0])


@pytest.mark.parametrize(("first", "second"), [(1, 1), (5, 3), (512, 64)])
@pytest.mark.parametrize("tokens", [1, 6])
def test_join_heads_takes_slices_of_longer_heads(pool: WorkerPool, tokens: int, first: int, second: int) -> None:
    a, b = random_floats(tokens, 3, first), random_floats(tokens, 3, second + 7)[..., 7:]
    np.testing.assert_array_equal(kernels.join_heads(pool, a, b), reference.join_heads(a, b))


@pytest.mark.parametrize("num_pairs", [1, 33, 64])
def test_turns_match_reference_at_far_positions(pool: WorkerPool, num_pairs: int) -> None:
    positions = np.array([0, 1, 2, 8191, 1_000_003], np.int32)
    frequencies = 10000.0 ** (-np.arange(num_pairs) / num_pairs)
    for got, want in zip(
        kernels.turns(pool, positions, frequencies, 1.25), reference.turns(positions, frequencies, 1.25), strict=True
    ):
        np.testing.assert_allclose(got, want, rtol=0, atol=2**-23)


def test_the_only_expert_is_the_first_with_the_weight_1(pool: WorkerPool) -> None:
    H, I = 32, 64
    mlp = ExpertMlp(*(ExpertWeight(quantized_weight(1, *shape, seed=3)) for shape in ((I, H), (I, H), (H, I))))
    x = random_floats(5, H)
    ids, weights = np.zeros((5, 1), np.int32), np.ones((5, 1), np.float32)
    np.testing.assert_array_equal(kernels.only_expert_mlp(pool, mlp, x), kernels.expert_mlp(pool, mlp, x, ids, weights))


def test_a_pool_counts_the_bytes_of_weights_each_expert_once(pool: WorkerPool) -> None:
    H, I, E = 32, 64, 5
    weight, table = quantized_weight(7, 64), quantized_weight(9, 32)
    mlp = ExpertMlp(*(ExpertWeight(quantized_weight(E, *shape)) for shape in ((I, H), (I, H), (H, I))))

    def counted(call: Callable[[], object]) -> int:
        before = pool.weight_bytes
        call()
        return pool.weight_bytes - before

    assert counted(lambda: kernels.linear(pool, weight, random_floats(3, 64))) == 7 * 2 * 34
    assert counted(lambda: kernels.get_rows(pool, table, np.array([1, 1], np.int32))) == 2 * 34
    ids, shares, x = np.array([[0, 4], [4, 1]], np.int32), np.ones((2, 2), np.float32), random_floats(2, H)
    expert_bytes = sum(mlp_weight.blocks.nbytes for mlp_weight in mlp.weights) // E
    assert counted(lambda: kernels.expert_mlp(pool, mlp, x, ids, shares)) == 3 * expert_bytes
    assert pool.busy_seconds > 0


@pytest.mark.parametrize("pairing", list(RopePairing))
def test_rope_matches_reference_and_leaves_the_rest_of_a_head(pool: WorkerPool, pairing: RopePairing) -> None:
    x = random_floats(3, 2, 12)
    angles = random_floats(3, 4, seed=1)
    want = reference.rope(x, np.cos(angles), np.sin(angles), pairing)
    kernels.rope(pool, x, np.cos(angles), np.sin(angles), pairing)
    assert_close(x, want)


def test_rope_turns_a_part_of_a_head_in_place(pool: WorkerPool) -> None:
    x = random_floats(3, 2, 12)
    before, angles = x.copy(), random_floats(3, 2, seed=1)
    want = reference.rope(x[..., 8:], np.cos(angles), np.sin(angles), RopePairing.NEIGHBOURS)
    kernels.rope(pool, x[..., 8:], np.cos(angles), np.sin(angles), RopePairing.NEIGHBOURS)
    np.testing.assert_array_equal(x[..., :8], before[..., :8])
    assert_close(x[..., 8:], want)


@pytest.mark.parametrize(
    "call",
    [
        lambda pool: kernels.linear(pool, quantized_weight(4, 32), random_floats(2, 64)),
        lambda pool: kernels.linear(pool, quantized_weight(4, 32), random_floats(2, 32), random_floats(5)),
        lambda pool: kernels.get_rows(pool, quantized_weight(4, 32), np.array([4], np.int32)),
        lambda pool: kernels.get_rows(pool, quantized_weight(4, 32), np.array([-1], np.int32)),
        lambda pool: kernels.rms_norm(pool, random_floats(4, 8), random_floats(4), 0.0),
        lambda pool: kernels.add(pool, random_floats(4, 8), random_floats(4, 9)),
        lambda pool: kernels.gate(pool, random_floats(4, 8), random_floats(3, 1)),
        lambda pool: kernels.join_heads(pool, random_floats(4, 2, 8), random_floats(4, 3, 8)),
    ],
)
def test_a_wrong_shape_or_id_is_refused_before_any_work(call: object) -> None:
    with pytest.raises(ValueError, match=r"linear|get_rows|rms_norm|add|gate|join_heads"):
        call(kernels.worker_pool(1))  # type: ignore[operator]
