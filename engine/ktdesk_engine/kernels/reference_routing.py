"""`kernels.routing` once more in numpy: the definition of right."""

from __future__ import annotations

import numpy as np

from ktdesk_engine.kernels import Floats
from ktdesk_engine.kernels.routing import SMALLEST_WEIGHT_SUM, Gating, Routes, RoutingRule


def softmax(logits: np.ndarray) -> np.ndarray:
    """Over the last axis."""
    shares = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return shares / shares.sum(axis=-1, keepdims=True)


def sigmoid(logits: np.ndarray) -> np.ndarray:
    """Without overflow on either side."""
    return np.exp(-np.logaddexp(0, -logits))


def choose_experts(logits: Floats, rule: RoutingRule, selection_bias: Floats | None = None) -> Routes:
    """logits (T, E), selection_bias (E,): for choosing only, never part of a weight."""
    scores = _scores(logits.astype(np.float64), rule.gating)
    selection = scores if selection_bias is None else scores + selection_bias
    if rule.num_groups > 1:
        selection = _only_best_groups(selection, rule)
    ids = _largest(selection, rule.num_used)
    return Routes(ids.astype(np.int32), _weights(np.take_along_axis(scores, ids, axis=-1), rule))


def _scores(logits: np.ndarray, gating: Gating) -> np.ndarray:
    if gating is Gating.SOFTMAX:
        return softmax(logits)
    return sigmoid(logits) if gating is Gating.SIGMOID else logits


def _weights(chosen: np.ndarray, rule: RoutingRule) -> Floats:
    """Of the chosen scores (T, K)."""
    if rule.gating is Gating.SOFTMAX_OF_CHOSEN:
        chosen = softmax(chosen)
    if rule.normalize:
        chosen = chosen / np.maximum(chosen.sum(axis=-1, keepdims=True), SMALLEST_WEIGHT_SUM)
    return (chosen * rule.scale).astype(np.float32)


def _largest(values: np.ndarray, count: int) -> np.ndarray:
    """Indices of the largest along the last axis, largest first, the lower index first among equals."""
    return np.argsort(-values, axis=-1, kind="stable")[..., :count]


def _only_best_groups(selection: np.ndarray, rule: RoutingRule) -> np.ndarray:
    """Experts outside the best groups get -inf."""
    groups = selection.reshape(len(selection), rule.num_groups, -1)
    quality = np.sort(groups, axis=-1)[..., -2:].sum(axis=-1)  # (T, groups)
    best = _largest(quality, rule.num_groups_used)
    masked = np.full_like(groups, -np.inf)
    np.put_along_axis(masked, best[..., None], np.take_along_axis(groups, best[..., None], axis=1), axis=1)
    return masked.reshape(selection.shape)
