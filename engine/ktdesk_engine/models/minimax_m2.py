"""MiniMax M2: rope on halves of half a head, one norm over all heads' queries, one over all keys; all layers
have experts, mostly by sigmoid with a bias for choosing, their weights summing to one.
"""

from __future__ import annotations

from ktdesk_engine.backends.backend import Backend
from ktdesk_engine.experts.moe import MoeLayer
from ktdesk_engine.gguf.file import GGUFFile
from ktdesk_engine.gguf.hparams import Metadata
from ktdesk_engine.kernels import RopePairing
from ktdesk_engine.layers.attention import (
    AttentionShape,
    GroupedQueryAttention,
    QueryKeyNorms,
    attention_shapes,
    full_attention_rule,
)
from ktdesk_engine.layers.norms import RmsNorm
from ktdesk_engine.layers.rope import Rope, rope_from_metadata
from ktdesk_engine.layers.router import routing_rule
from ktdesk_engine.models.base import (
    NO_DENSE_LAYERS,
    NO_SHARED_EXPERTS,
    Block,
    Decoder,
    feed_forward_width,
    num_blocks,
    num_layers,
    refuse_all_but,
    rms_epsilon,
)
from ktdesk_engine.weights import Weights

ARCHITECTURE = "minimax-m2"


class MiniMaxM2(Decoder):
    def __init__(self, file: GGUFFile, backend: Backend) -> None:
        hparams, weights = file.hparams(), Weights(file, backend)
        refuse_all_but(hparams, NO_SHARED_EXPERTS | NO_DENSE_LAYERS)
        shapes = attention_shapes(hparams, num_blocks(hparams))
        rope = rope_from_metadata(hparams, RopePairing.HALVES, shapes[0].key_length, weights)
        layers = range(num_layers(hparams))
        blocks = [_block(hparams, weights.block(layer), layer, shapes[layer], rope) for layer in layers]
        super().__init__(hparams, weights, rope, blocks)


def _block(hparams: Metadata, weights: Weights, layer: int, shape: AttentionShape, rope: Rope) -> Block:
    epsilon, rule = rms_epsilon(hparams), full_attention_rule(hparams, shape)
    norms = QueryKeyNorms(
        RmsNorm(weights, "attn_q_norm", shape.num_heads * shape.key_length, epsilon),
        RmsNorm(weights, "attn_k_norm", shape.num_kv_heads * shape.key_length, epsilon),
    )
    weights.require("exp_probs_b.bias")
    width = feed_forward_width(hparams, layer)  # of the experts: this architecture has no other
    return Block(
        attention_norm=RmsNorm(weights, "attn_norm", shape.hidden, epsilon),
        attention=GroupedQueryAttention(weights, layer, shape, rope, rule, norms),
        ffn_norm=RmsNorm(weights, "ffn_norm", shape.hidden, epsilon),
        ffn=MoeLayer(weights, shape.hidden, width, routing_rule(hparams, normalize=True)),
    )


MODEL = MiniMaxM2
