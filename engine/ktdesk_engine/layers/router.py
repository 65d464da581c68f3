"""Which experts a token goes to, and with what weight."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

import numpy as np

from ktdesk_engine.gguf.hparams import Metadata
from ktdesk_engine.kernels import Floats, Ids
from ktdesk_engine.layers.linear import Linear
from ktdesk_engine.weights import Weights

MAX_EXPERTS = 4096

SMALLEST_WEIGHT_SUM = 6.103515625e-5
"""The smallest normal float16: what a sum of weights is at least taken to be."""


class Gating(Enum):
    """How router logits become probabilities; the values of the key `expert_gating_func`."""

    SOFTMAX = 1
    SIGMOID = 2
    SOFTMAX_OF_CHOSEN = 3
    """Choose on the logits, then softmax over the chosen."""


@dataclass(frozen=True)
class RoutingRule:
    num_experts: int
    num_used: int
    gating: Gating = Gating.SOFTMAX
    normalize: bool = False
    """Divide the chosen weights by their sum."""
    scale: float = 1.0
    num_groups: int = 1
    num_groups_used: int = 1
    """Only experts of the best groups may be chosen; a group is as good as its two best experts together."""


def routing_rule(
    hparams: Metadata,
    *,
    gating: Gating | None = None,
    default_gating: Gating | None = None,
    normalize: bool | None = None,
) -> RoutingRule:
    """From the keys `expert_*`; gating and normalize are given where the architecture knows them by itself.

    default_gating: where the file need not say it.
    """
    num_experts = hparams.integer("expert_count", minimum=1, maximum=MAX_EXPERTS)
    num_groups = hparams.integer("expert_group_count", 1, minimum=0, maximum=num_experts) or 1
    if num_experts % num_groups:
        raise hparams.unsupported("expert_group_count", f"divisors of the {num_experts} experts")
    num_groups_used = 1
    if num_groups > 1:
        num_groups_used = hparams.integer("expert_group_used_count", minimum=1, maximum=num_groups)
    if normalize is None:
        normalize = hparams.boolean("expert_weights_norm", False)
    choice = num_experts // num_groups * num_groups_used
    return RoutingRule(
        num_experts=num_experts,
        num_used=hparams.integer("expert_used_count", minimum=1, maximum=choice),
        gating=_only_gating(hparams, gating) if gating else _gating(hparams, default_gating),
        normalize=normalize,
        scale=hparams.number("expert_weights_scale", 1.0) or 1.0,  # 0 is written for: not scaled
        num_groups=num_groups,
        num_groups_used=num_groups_used,
    )


def _only_gating(hparams: Metadata, gating: Gating) -> Gating:
    """The architecture's own. UnsupportedError where the file names another; 0 is written for: not named."""
    if hparams.integer("expert_gating_func", 0) not in (0, gating.value):
        raise hparams.unsupported("expert_gating_func", f"{gating.value} in this architecture")
    return gating


def _gating(hparams: Metadata, default: Gating | None) -> Gating:
    if default and not hparams.integer("expert_gating_func", 0):
        return default
    number = hparams.integer("expert_gating_func")
    if number not in [gating.value for gating in Gating]:
        raise hparams.unsupported("expert_gating_func", "1 (softmax), 2 (sigmoid), 3 (softmax of the chosen)")
    return Gating(number)


class Routes(NamedTuple):
    ids: Ids
    """(T, K)"""
    weights: Floats
    """(T, K)"""


def softmax(logits: np.ndarray) -> np.ndarray:
    """Over the last axis."""
    shares = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return shares / shares.sum(axis=-1, keepdims=True)


def sigmoid(logits: np.ndarray) -> np.ndarray:
    """Without overflow on either side."""
    return np.exp(-np.logaddexp(0, -logits))


def choose_experts(logits: np.ndarray, rule: RoutingRule, selection_bias: Floats | None = None) -> Routes:
    """logits (T, E), selection_bias (E,): for choosing only, never part of a weight."""
    scores = _scores(logits, rule.gating)
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


class Router:
    """`ffn_gate_inp` of one layer, with `exp_probs_b` if the file has it."""

    def __init__(self, weights: Weights, hidden: int, rule: RoutingRule) -> None:
        self._rule = rule
        self._logits = Linear(weights, "ffn_gate_inp", rule.num_experts, hidden)
        self._selection_bias = weights.bias("exp_probs_b.bias", rule.num_experts)

    def __call__(self, x: Floats) -> Routes:
        """(T, H) -> (T, K) each."""
        return choose_experts(self._logits(x), self._rule, self._selection_bias)
