"""GLM-4.5, 4.6 and 4.7: rope on halves of a part of each head, biases on queries, keys and values, in some a norm
on each head; first layers dense, then experts with a bias for choosing, and shared ones.
"""

from __future__ import annotations

from ktdesk_engine.backends.backend import Backend
from ktdesk_engine.experts.moe import MoeLayer
from ktdesk_engine.gguf.file import GGUFFile
from ktdesk_engine.gguf.hparams import Metadata
from ktdesk_engine.kernels import RopePairing
from ktdesk_engine.kernels.routing import Gating
from ktdesk_engine.layers.attention import (
    AttentionShape,
    GroupedQueryAttention,
    QueryKeyNorms,
    attention_shapes,
    full_attention_rule,
)
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

ARCHITECTURE = "glm4moe"


class Glm4Moe(Decoder):
    def __init__(self, file: GGUFFile, backend: Backend) -> None:
        hparams, weights = file.hparams(), Weights(file, backend)
        shapes = attention_shapes(hparams, num_blocks(hparams))
        rope = rope_from_metadata(hparams, RopePairing.HALVES, shapes[0].key_length, weights)
        _check_positions(hparams)
        layers = range(num_layers(hparams))
        blocks = [_block(hparams, weights.block(layer), layer, shapes[layer], rope) for layer in layers]
        super().__init__(hparams, weights, rope, blocks)


def _check_positions(hparams: Metadata) -> None:
    """Files of the models that see split the pairs among three axes; in text all three have the same position."""
    if hparams.per_layer("rope.dimension_sections", 4, 0, minimum=0)[3]:
        raise hparams.unsupported("rope.dimension_sections", "three sections and a 0")


def _block(hparams: Metadata, weights: Weights, layer: int, shape: AttentionShape, rope: Rope) -> Block:
    epsilon, rule = rms_epsilon(hparams), full_attention_rule(hparams, shape)
    norms = None
    if weights.has("attn_q_norm.weight"):  # GLM-4.5-Air has none
        norms = QueryKeyNorms(
            RmsNorm(weights, "attn_q_norm", shape.key_length, epsilon),
            RmsNorm(weights, "attn_k_norm", shape.key_length, epsilon),
        )
    return Block(
        attention_norm=RmsNorm(weights, "attn_norm", shape.hidden, epsilon),
        attention=GroupedQueryAttention(weights, layer, shape, rope, rule, norms),
        ffn_norm=RmsNorm(weights, "post_attention_norm", shape.hidden, epsilon),
        ffn=_feed_forward(hparams, weights, layer, shape.hidden),
    )


def _feed_forward(hparams: Metadata, weights: Weights, layer: int, hidden: int) -> Mlp | MoeLayer:
    if layer < num_dense_layers(hparams):
        return Mlp(weights, hidden, feed_forward_width(hparams, layer))
    weights.require("exp_probs_b.bias")
    routing = routing_rule(hparams, default_gating=Gating.SIGMOID)
    shared_width = shared_expert_width(hparams)
    shared = Mlp(weights, hidden, shared_width, suffix="_shexp") if shared_width else None
    return MoeLayer(weights, hidden, expert_width(hparams), routing, shared=shared)


MODEL = Glm4Moe
