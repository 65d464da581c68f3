"""DeepSeek-V2, V3 and R1, and all in their shape (Kimi-K2, Moonlight, GLM-4.7-Flash): keys decide, never names.

Multi-head latent attention, rope on neighbouring pairs; first layers dense, then routed and shared experts.
"""

from __future__ import annotations

import math
from dataclasses import replace

from ktdesk_engine.backends.backend import Backend
from ktdesk_engine.experts.moe import MoeLayer
from ktdesk_engine.gguf.file import GGUFFile
from ktdesk_engine.gguf.hparams import Metadata
from ktdesk_engine.kernels import AttentionRule, RopePairing
from ktdesk_engine.kernels.routing import Gating, RoutingRule
from ktdesk_engine.layers.attention import refuse_window
from ktdesk_engine.layers.latent_attention import LatentAttention, LatentShape, LowRankQueries, latent_shapes
from ktdesk_engine.layers.linear import Linear
from ktdesk_engine.layers.mlp import Mlp
from ktdesk_engine.layers.norms import RmsNorm
from ktdesk_engine.layers.rope import Rope, rope_from_metadata
from ktdesk_engine.layers.router import routing_rule
from ktdesk_engine.models.base import (
    Block,
    Decoder,
    expert_width,
    feed_forward_width,
    num_blocks,
    num_dense_layers,
    num_layers,
    rms_epsilon,
    shared_expert_width,
)
from ktdesk_engine.weights import Weights

ARCHITECTURE = "deepseek2"


class DeepSeek2(Decoder):
    def __init__(self, file: GGUFFile, backend: Backend) -> None:
        hparams, weights = file.hparams(), Weights(file, backend)
        shapes = latent_shapes(hparams, num_blocks(hparams))
        rope, rule = _rope_and_rule(hparams, weights, shapes[0])
        routing = routing_rule(hparams, default_gating=_default_gating(hparams, weights))
        blocks = [
            Block(
                attention_norm=RmsNorm(layer_weights, "attn_norm", shape.hidden, rms_epsilon(hparams)),
                attention=_attention(hparams, layer_weights, layer, shape, rope, rule),
                ffn_norm=RmsNorm(layer_weights, "ffn_norm", shape.hidden, rms_epsilon(hparams)),
                ffn=_feed_forward(hparams, layer_weights, layer, shape.hidden, routing),
            )
            for layer, shape in enumerate(shapes[: num_layers(hparams)])
            for layer_weights in [weights.block(layer)]
        ]
        super().__init__(hparams, weights, rope, blocks)


def _rope_and_rule(hparams: Metadata, weights: Weights, shape: LatentShape) -> tuple[Rope, AttentionRule]:
    """YaRN with a log multiplier sharpens the scores by m² here, instead of stretching cosines and sines.

    The key holds a tenth of the multiplier.
    """
    rope = rope_from_metadata(hparams, RopePairing.NEIGHBOURS, shape.turning_length, weights)
    scale = shape.query_length**-0.5
    multiplier = hparams.number("rope.scaling.yarn_log_multiplier", 0.0) / 0.1
    if rope.yarn is None or not multiplier:
        return rope, _rule(hparams, scale)
    if hparams.number("rope.scaling.attn_factor", 1.0) != 1.0:
        raise hparams.unsupported("rope.scaling.attn_factor", "1 in this architecture")
    return replace(rope, magnitude=1.0), _rule(hparams, scale * rope.yarn.magnitude(multiplier) ** 2)


def _rule(hparams: Metadata, scale: float) -> AttentionRule:
    """UnsupportedError where the file asks for another scale, or for a window."""
    refuse_window(hparams)
    if not math.isclose(hparams.number("attention.scale", 0.0) or scale, scale, rel_tol=1e-5):
        raise hparams.unsupported("attention.scale", f"0 or {scale:.6g} in this file")
    return AttentionRule(scale)


def _default_gating(hparams: Metadata, weights: Weights) -> Gating:
    """Where the file does not say it: the first files of GLM-4.7-Flash are told by their size."""
    vocab_size = weights.num_rows("token_embd.weight")
    return Gating.SIGMOID if num_layers(hparams) in (47, 48) and vocab_size == 154880 else Gating.SOFTMAX


def _attention(
    hparams: Metadata, weights: Weights, layer: int, shape: LatentShape, rope: Rope, rule: AttentionRule
) -> LatentAttention:
    epsilon = rms_epsilon(hparams)
    queries: Linear | LowRankQueries
    if weights.has("attn_q.weight"):
        queries = Linear(weights, "attn_q", shape.num_heads * shape.query_length, shape.hidden)
    else:
        rank = hparams.integer("attention.q_lora_rank", minimum=1)
        queries = LowRankQueries(weights, shape, rank, epsilon)
    return LatentAttention(weights, layer, shape, queries, rope, rule, epsilon)


def _feed_forward(hparams: Metadata, weights: Weights, layer: int, hidden: int, routing: RoutingRule) -> Mlp | MoeLayer:
    if layer < num_dense_layers(hparams):
        return Mlp(weights, hidden, feed_forward_width(hparams, layer))
    shared_width = shared_expert_width(hparams)
    shared = Mlp(weights, hidden, shared_width, suffix="_shexp") if shared_width else None
    return MoeLayer(weights, hidden, expert_width(hparams), routing, shared=shared)


MODEL = DeepSeek2
