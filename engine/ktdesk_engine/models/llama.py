"""Llama: dense (Llama 1 to 3, Mistral, SmolLM) and with experts (Mixtral).

Grouped-query attention, rope on neighbouring pairs; SwiGLU; experts by softmax, their weights summing to one.
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
    attention_shapes,
    full_attention_rule,
)
from ktdesk_engine.layers.mlp import Mlp
from ktdesk_engine.layers.norms import RmsNorm
from ktdesk_engine.layers.rope import Rope, rope_from_metadata
from ktdesk_engine.layers.router import routing_rule
from ktdesk_engine.models.base import (
    NO_DENSE_LAYERS,
    NO_SHARED_EXPERTS,
    Block,
    Decoder,
    expert_width,
    feed_forward_width,
    num_blocks,
    num_layers,
    refuse_all_but,
    rms_epsilon,
)
from ktdesk_engine.weights import Weights

ARCHITECTURE = "llama"


class Llama(Decoder):
    def __init__(self, file: GGUFFile, backend: Backend) -> None:
        hparams, weights = file.hparams(), Weights(file, backend)
        refuse_all_but(hparams, NO_SHARED_EXPERTS | NO_DENSE_LAYERS)
        shapes = attention_shapes(hparams, num_blocks(hparams))
        rope = rope_from_metadata(hparams, RopePairing.NEIGHBOURS, shapes[0].key_length, weights)
        layers = range(num_layers(hparams))
        blocks = [_block(hparams, weights.block(layer), layer, shapes[layer], rope) for layer in layers]
        super().__init__(hparams, weights, rope, blocks)


def _block(hparams: Metadata, weights: Weights, layer: int, shape: AttentionShape, rope: Rope) -> Block:
    epsilon, rule = rms_epsilon(hparams), full_attention_rule(hparams, shape)
    return Block(
        attention_norm=RmsNorm(weights, "attn_norm", shape.hidden, epsilon),
        attention=GroupedQueryAttention(weights, layer, shape, rope, rule),
        ffn_norm=RmsNorm(weights, "ffn_norm", shape.hidden, epsilon),
        ffn=_feed_forward(hparams, weights, layer, shape.hidden),
    )


def _feed_forward(hparams: Metadata, weights: Weights, layer: int, hidden: int) -> Mlp | MoeLayer:
    width = feed_forward_width(hparams, layer)
    if not hparams.integer("expert_count", 0, minimum=0):
        return Mlp(weights, hidden, width)
    # Mixtral files keep the experts' width in feed_forward_length; newer ones in a key of its own.
    if hparams.has("expert_feed_forward_length"):
        width = expert_width(hparams)
    return MoeLayer(weights, hidden, width, routing_rule(hparams, gating=Gating.SOFTMAX, normalize=True))


MODEL = Llama
