"""Which experts a token goes to, and with what weight."""

from __future__ import annotations

from ktdesk_engine.gguf.hparams import Metadata
from ktdesk_engine.kernels import Floats
from ktdesk_engine.kernels.routing import Counts, Gating, Routes, RoutingRule
from ktdesk_engine.layers.linear import Linear
from ktdesk_engine.weights import Weights

MAX_EXPERTS = 4096


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
    choice = num_experts // num_groups * num_groups_used
    return RoutingRule(
        num_experts=num_experts,
        num_used=hparams.integer("expert_used_count", minimum=1, maximum=choice),
        gating=_only_gating(hparams, gating) if gating else _gating(hparams, default_gating),
        normalize=_normalize(hparams, normalize),
        scale=hparams.number("expert_weights_scale", 1.0) or 1.0,  # 0 is written for: not scaled
        num_groups=num_groups,
        num_groups_used=num_groups_used,
    )


def _normalize(hparams: Metadata, own: bool | None) -> bool:
    """The file's, or the architecture's own. UnsupportedError where the file contradicts it."""
    if own is None:
        return hparams.boolean("expert_weights_norm", False)
    if hparams.boolean("expert_weights_norm", own) != own:
        raise hparams.unsupported("expert_weights_norm", f"{own} in this architecture")
    return own


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


class Router:
    """`ffn_gate_inp` of one layer, with `exp_probs_b` if the file has it."""

    def __init__(self, weights: Weights, hidden: int, rule: RoutingRule) -> None:
        self._backend = weights.backend
        self._rule = rule
        self._logits = Linear(weights, "ffn_gate_inp", rule.num_experts, hidden)
        self._selection_bias = weights.bias("exp_probs_b.bias", rule.num_experts)
        self.counts: Counts | None = None
        """(E,): grow by one for each token of an expert."""

    def __call__(self, x: Floats) -> Routes:
        """(T, H) -> (T, K) each."""
        return self._backend.choose_experts(self._logits(x), self._rule, self._selection_bias, self.counts)
