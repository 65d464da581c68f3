"""gpt-oss: biases everywhere, sinks, a sliding window on every other layer; experts by softmax over the chosen,
with a clamped activation.
"""

from __future__ import annotations

from ktdesk_engine.backends.backend import Backend
from ktdesk_engine.experts.moe import MoeLayer
from ktdesk_engine.gguf.file import GGUFFile
from ktdesk_engine.gguf.hparams import Metadata
from ktdesk_engine.kernels import Activation, AttentionRule, RopePairing
from ktdesk_engine.kernels.routing import Gating
from ktdesk_engine.layers.attention import (
    AttentionShape,
    GroupedQueryAttention,
    attention_scale,
    attention_shapes,
)
from ktdesk_engine.layers.norms import RmsNorm
from ktdesk_engine.layers.rope import Rope, rope_from_metadata
from ktdesk_engine.layers.router import routing_rule
from ktdesk_engine.models.base import (
    NO_DENSE_LAYERS,
    NO_SHARED_EXPERTS,
    Block,
    Decoder,
    expert_width,
    num_blocks,
    num_layers,
    refuse_all_but,
    rms_epsilon,
)
from ktdesk_engine.weights import Weights

ARCHITECTURE = "gpt-oss"

BIASES = (
    *("attn_q.bias", "attn_k.bias", "attn_v.bias", "attn_output.bias"),
    *("ffn_gate_inp.bias", "ffn_gate_exps.bias", "ffn_up_exps.bias", "ffn_down_exps.bias"),
)


class GptOss(Decoder):
    def __init__(self, file: GGUFFile, backend: Backend) -> None:
        hparams, weights = file.hparams(), Weights(file, backend)
        refuse_all_but(hparams, NO_SHARED_EXPERTS | NO_DENSE_LAYERS)
        shapes = attention_shapes(hparams, num_blocks(hparams))
        rope = rope_from_metadata(hparams, RopePairing.HALVES, shapes[0].key_length, weights)
        if hparams.number("rope.freq_base_swa", rope.base) != rope.base:
            raise hparams.unsupported("rope.freq_base_swa", "the same base in all layers")
        layers = range(num_layers(hparams))
        blocks = [_block(hparams, weights.block(layer), layer, shapes[layer], rope) for layer in layers]
        super().__init__(hparams, weights, rope, blocks)


def _window(hparams: Metadata, layer: int) -> int:
    """How many last positions a token sees in a layer, 0 for all: in each period of layers the last sees all.

    The file has the period, or says for each layer whether it has the window.
    """
    window = hparams.integer("attention.sliding_window", minimum=1, maximum=2**31 - 1)
    if hparams.is_array("attention.sliding_window_pattern"):
        has_window = hparams.flags("attention.sliding_window_pattern", num_blocks(hparams))[layer]
        return window if has_window else 0
    period = hparams.integer("attention.sliding_window_pattern", 2, minimum=0)
    sees_all = period > 0 and layer % period == period - 1
    return 0 if sees_all else window


def _block(hparams: Metadata, weights: Weights, layer: int, shape: AttentionShape, rope: Rope) -> Block:
    epsilon = rms_epsilon(hparams)
    rule = AttentionRule(
        scale=attention_scale(hparams, shape),
        window=_window(hparams, layer),
        sinks=weights.vector("attn_sinks.weight", shape.num_heads),
    )
    routing = routing_rule(hparams, gating=Gating.SOFTMAX_OF_CHOSEN, normalize=False)
    weights.require(*BIASES)
    return Block(
        attention_norm=RmsNorm(weights, "attn_norm", shape.hidden, epsilon),
        attention=GroupedQueryAttention(weights, layer, shape, rope, rule),
        ffn_norm=RmsNorm(weights, "post_attention_norm", shape.hidden, epsilon),
        ffn=MoeLayer(weights, shape.hidden, expert_width(hparams), routing, Activation.SWIGLU_OAI),
    )


MODEL = GptOss
