"""Qwen1.5-MoE and Qwen2-MoE: as Qwen2; experts by softmax, weighed by the bare probabilities, and a shared
expert behind a gate of its own.
"""

from __future__ import annotations

import numpy as np

from ktdesk_engine.backends.backend import Backend
from ktdesk_engine.experts.moe import MoeLayer
from ktdesk_engine.gguf.file import GGUFFile
from ktdesk_engine.gguf.hparams import Metadata
from ktdesk_engine.kernels import Floats, RopePairing, Weight
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
    MAX_WIDTH,
    NO_DENSE_LAYERS,
    Block,
    Decoder,
    expert_width,
    feed_forward_width,
    num_blocks,
    num_layers,
    refuse_all_but,
    rms_epsilon,
)
from ktdesk_engine.quants.formats import WeightType
from ktdesk_engine.weights import Weights

ARCHITECTURE = "qwen2moe"


class Qwen2Moe(Decoder):
    def __init__(self, file: GGUFFile, backend: Backend) -> None:
        hparams, weights = file.hparams(), Weights(file, backend)
        refuse_all_but(hparams, NO_DENSE_LAYERS)
        shapes = attention_shapes(hparams, num_blocks(hparams))
        rope = rope_from_metadata(hparams, RopePairing.HALVES, shapes[0].key_length, weights)
        layers = range(num_layers(hparams))
        blocks = [_block(hparams, weights.block(layer), layer, shapes[layer], rope) for layer in layers]
        super().__init__(hparams, weights, rope, blocks)


def _block(hparams: Metadata, weights: Weights, layer: int, shape: AttentionShape, rope: Rope) -> Block:
    epsilon, rule = rms_epsilon(hparams), full_attention_rule(hparams, shape)
    return Block(
        attention_norm=RmsNorm(weights, "attn_norm", shape.hidden, epsilon),
        attention=GroupedQueryAttention(weights, layer, shape, rope, rule),
        ffn_norm=RmsNorm(weights, "ffn_norm", shape.hidden, epsilon),
        ffn=_experts(hparams, weights, layer, shape.hidden),
    )


def _experts(hparams: Metadata, weights: Weights, layer: int, hidden: int) -> MoeLayer:
    dense_width = feed_forward_width(hparams, layer)
    routing = routing_rule(hparams, gating=Gating.SOFTMAX, normalize=False)
    width = dense_width // routing.num_used
    if hparams.has("expert_feed_forward_length"):
        width = expert_width(hparams)
    shared_width = hparams.integer("expert_shared_feed_forward_length", dense_width, minimum=1, maximum=MAX_WIDTH)
    return MoeLayer(weights, hidden, width, routing, shared=GatedExpert(weights, hidden, shared_width))


class GatedExpert:
    """The shared expert, times the sigmoid of `ffn_gate_inp_shexp` · x."""

    def __init__(self, weights: Weights, hidden: int, width: int) -> None:
        self._backend = weights.backend
        gate = weights.vector("ffn_gate_inp_shexp.weight", hidden)
        self._gate = Weight(WeightType.F32, gate.view(np.uint8)[None])
        self._mlp = Mlp(weights, hidden, width, suffix="_shexp")

    def __call__(self, x: Floats) -> Floats:
        """(T, H) -> (T, H)."""
        return self._backend.gate(self._mlp(x), self._backend.linear(self._gate, x))


MODEL = Qwen2Moe
