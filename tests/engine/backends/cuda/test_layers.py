"""What lies between the products: norms, rope, routing, activations, against the numpy reference."""

from __future__ import annotations

import numpy as np
import pytest
from random_blocks import random_weight

torch = pytest.importorskip("torch", reason="the extra gpu is not installed")

from ktdesk_engine import kernels  # noqa: E402
from ktdesk_engine.backends.cuda.backend import TorchBackend  # noqa: E402
from ktdesk_engine.kernels import (  # noqa: E402
    Activation,
    ExpertMlp,
    ExpertWeight,
    RopePairing,
    reference,
    reference_routing,
)
from ktdesk_engine.kernels.routing import Gating, RoutingRule  # noqa: E402
from ktdesk_engine.quants.formats import WeightType  # noqa: E402


@pytest.fixture(scope="module")
def backend(device: torch.device) -> TorchBackend:
    return TorchBackend(device, kernels.worker_pool(1))


def floats(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def on(backend: TorchBackend, array: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(array.copy()).to(backend.device)


def assert_close(got: torch.Tensor, want: np.ndarray) -> None:
    np.testing.assert_allclose(got.cpu().numpy(), want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("length", [1, 33, 96])
def test_rms_norm_matches_the_reference(backend: TorchBackend, length: int) -> None:
    x, weight = floats(3, length), floats(length, seed=1)
    assert_close(backend.rms_norm(on(backend, x), weight, 1e-6), reference.rms_norm(x, weight, 1e-6))


def test_some_columns_are_normed_in_place_and_the_others_left(backend: TorchBackend) -> None:
    x, weight = floats(2, 40), floats(24, seed=1)
    wide = on(backend, x)
    backend.rms_norm_in_place(wide[:, :24], weight, 1e-6)
    assert_close(wide[:, :24], reference.rms_norm(x[:, :24], weight, 1e-6))
    np.testing.assert_array_equal(wide[:, 24:].cpu().numpy(), x[:, 24:])


@pytest.mark.parametrize("pairing", list(RopePairing))
def test_rope_turns_as_the_reference(backend: TorchBackend, pairing: RopePairing) -> None:
    x, frequencies = floats(3, 2, 20), 100.0 ** (-np.arange(6) / 6)
    positions = np.array([0, 5, 100000], np.int32)
    turns = backend.turns(on(backend, positions), frequencies, 1.5)
    want = reference.turns(positions, frequencies, 1.5)
    assert_close(turns.cosines, want[0])
    turned = on(backend, x)
    backend.rope(turned, *turns, pairing)
    assert_close(turned, reference.rope(x, *(angles.astype(np.float32) for angles in want), pairing))


@pytest.mark.parametrize("gating", list(Gating))
@pytest.mark.parametrize(("groups", "groups_used"), [(1, 1), (4, 2), (12, 5)])
@pytest.mark.parametrize("normalize", [False, True])
def test_experts_are_chosen_as_by_the_reference(
    backend: TorchBackend, gating: Gating, groups: int, groups_used: int, normalize: bool
) -> None:
    rule = RoutingRule(12, 5, gating, normalize, 2.5, groups, groups_used)
    logits, bias = floats(4, 12, seed=groups), floats(12, seed=3) if groups > 1 else None
    got = backend.choose_experts(on(backend, logits), rule, bias)
    want = reference_routing.choose_experts(logits, rule, bias)
    np.testing.assert_array_equal(got.ids.cpu().numpy(), want.ids)
    assert_close(got.weights, want.weights)


def test_the_lower_id_is_chosen_first_among_equals(backend: TorchBackend) -> None:
    routes = backend.choose_experts(on(backend, np.zeros((1, 8), np.float32)), RoutingRule(8, 3), None)
    assert routes.ids.tolist() == [[0, 1, 2]]


def test_uses_of_experts_are_counted_when_the_host_synchronizes(backend: TorchBackend) -> None:
    counts = np.full(8, 10, np.int64)
    for _ in range(2):
        backend.choose_experts(on(backend, np.zeros((3, 8), np.float32)), RoutingRule(8, 2), None, counts)
    assert counts.tolist() == [10] * 8
    backend.synchronize()
    assert counts.tolist() == [16, 16, *[10] * 6]


def test_numbers_that_are_not_finite_are_counted(backend: TorchBackend) -> None:
    values = np.array([[1, np.nan, 2], [np.inf, 3, -np.inf]], np.float32)
    assert backend.count_not_finite(on(backend, values)[:, :2]).tolist() == [2]


def experts(activation: Activation, weighs_inputs: bool = False, extras: bool = True) -> ExpertMlp:
    rng = np.random.default_rng(4)

    def part(weight_type: WeightType, rows: int, length: int, seed: int) -> ExpertWeight:
        weight = random_weight(rng, weight_type, (5, rows, length), 0.2)
        scale = np.array([1, 2, 0.5, 1, 3], np.float32) if extras else None
        return ExpertWeight(weight, floats(5, rows, seed=seed) if extras else None, scale)

    gate, up = part(WeightType.Q4_0, 32, 64, 1), part(WeightType.Q5_1, 32, 64, 2)
    return ExpertMlp(gate, up, part(WeightType.Q8_0, 64, 32, 3), activation, 0.7, weighs_inputs)


@pytest.mark.parametrize("activation", list(Activation))
def test_experts_of_few_tokens_match_the_reference(backend: TorchBackend, activation: Activation) -> None:
    mlp, x, weights = experts(activation), floats(2, 64), np.abs(floats(2, 3))
    ids = np.array([[4, 0, 2], [1, 4, 3]], np.int32)
    got = backend.experts(mlp, on(backend, x), on(backend, ids), on(backend, weights))
    np.testing.assert_allclose(got.cpu().numpy(), reference.expert_mlp(mlp, x, ids, weights), rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("tokens", [2, 19])
def test_weights_may_come_before_the_network(backend: TorchBackend, tokens: int) -> None:
    """Few tokens exactly; many as products of bfloat16."""
    mlp, x, weights = (
        experts(Activation.SWIGLU, weighs_inputs=True, extras=False),
        floats(tokens, 64),
        floats(tokens, 2),
    )
    ids = np.random.default_rng(0).permuted(np.tile(np.arange(5, dtype=np.int32), (tokens, 1)), axis=1)[:, :2].copy()
    got = backend.experts(mlp, on(backend, x), on(backend, ids), on(backend, weights)).cpu().numpy()
    want = reference.expert_mlp(mlp, x, ids, weights)
    assert np.abs(got - want).max() < (1e-5 if tokens == 2 else 0.03) * np.abs(want).max()


def test_experts_of_many_tokens_are_within_the_rounding_of_bfloat16(backend: TorchBackend) -> None:
    mlp, x, weights = experts(Activation.SWIGLU_OAI), floats(20, 64), np.abs(floats(20, 2))
    ids = np.random.default_rng(0).permuted(np.tile(np.arange(5, dtype=np.int32), (20, 1)), axis=1)[:, :2].copy()
    got = backend.experts(mlp, on(backend, x), on(backend, ids), on(backend, weights)).cpu().numpy()
    want = reference.expert_mlp(mlp, x, ids, weights)
    assert np.abs(got - want).max() < 0.03 * np.abs(want).max()


@pytest.mark.parametrize("tokens", [1, 18])
def test_heads_have_matrices_of_their_own(backend: TorchBackend, tokens: int) -> None:
    weight = random_weight(np.random.default_rng(1), WeightType.Q8_0, (3, 7, 32), 0.2)
    x = floats(tokens, 3, 40)
    got = backend.linear_per_head(weight, on(backend, x)[..., :32]).cpu().numpy()
    want = reference.linear_per_head(weight, np.ascontiguousarray(x[..., :32]))
    assert np.abs(got - want).max() < (1e-5 if tokens == 1 else 0.02) * np.abs(want).max()
