"""Small random experts and routes, for tests of what computes them."""

from __future__ import annotations

import numpy as np

from ktdesk_engine.kernels import ExpertMlp, ExpertWeight, Weight
from ktdesk_engine.kernels.routing import Routes
from ktdesk_engine.quants.formats import WeightType

H, I, E, K = 32, 48, 6, 3


def floats(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


def random_mlp(seed: int, biased: bool = False) -> ExpertMlp:
    parts = [_expert_weight(*size, seed + i, biased) for i, size in enumerate([(I, H), (I, H), (H, I)])]
    return ExpertMlp(*parts)


def random_routes(num_tokens: int, seed: int = 0) -> Routes:
    rng = np.random.default_rng(seed)
    ids = np.stack([rng.permutation(E)[:K] for _ in range(num_tokens)]).astype(np.int32)
    return Routes(ids, rng.random((num_tokens, K), np.float32))


def _expert_weight(num_rows: int, row_length: int, seed: int, biased: bool) -> ExpertWeight:
    blocks = floats(E, num_rows, row_length, seed=seed).view(np.uint8)
    bias = floats(E, num_rows, seed=seed + 1) if biased else None
    return ExpertWeight(Weight(WeightType.F32, blocks), bias)
