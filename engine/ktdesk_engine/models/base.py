"""What the families share: the path from token ids through the layers to logits."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, Protocol

from ktdesk_engine.backends.backend import Backend, Recorder
from ktdesk_engine.batch import Batch
from ktdesk_engine.experts.moe import MoeLayer
from ktdesk_engine.gguf.file import GGUFFile
from ktdesk_engine.gguf.hparams import Metadata
from ktdesk_engine.kernels import Floats, Turns
from ktdesk_engine.kv_cache import KVCache
from ktdesk_engine.layers.attention import GroupedQueryAttention
from ktdesk_engine.layers.embedding import Embedding
from ktdesk_engine.layers.latent_attention import LatentAttention
from ktdesk_engine.layers.mlp import Mlp
from ktdesk_engine.layers.norms import RmsNorm
from ktdesk_engine.layers.rope import Rope
from ktdesk_engine.weights import Weights

MAX_BLOCKS = 512
MAX_WIDTH = 1 << 24

UNKNOWN_VARIANTS: Mapping[str, tuple[float, ...]] = {
    "attention.causal": (True,),
    "attention.clamp_kqv": (0,),
    "attention.indexer.top_k": (0,),
    "attention.max_alibi_bias": (0,),
    "attention.output_scale": (0, 1),
    "attention.recurrent_layers": (0,),
    "attention.shared_kv_layers": (0,),
    "attention.temperature_scale": (0,),
    "attention.value_scale": (0, 1),
    "attn_logit_softcapping": (0,),
    "embedding_scale": (0, 1),
    "expert_chunk_feed_forward_length": (0,),
    "expert_group_scale": (0,),
    "expert_latent_length": (0,),
    "experts_per_group": (0,),
    "final_logit_softcapping": (0,),
    "full_attention_interval": (0, 1),
    "hash_layer_count": (0,),
    "hyper_connection.count": (0, 1),
    "interleave_moe_layer_step": (0, 1),
    "logit_scale": (0, 1),
    "moe_every_n_layers": (0, 1),
    "moe_latent_size": (0,),
    "residual_scale": (0, 1),
    "router_logit_softcapping": (0,),
    "swiglu_clamp_exp": (0,),
    "swiglu_clamp_shexp": (0,),
    "use_parallel_residual": (False,),
}
"""What changes the answer and no family computes that does not say so, with the values that change nothing."""

NO_EXPERTS = {"expert_count": (0,)}
NO_SHARED_EXPERTS = {"expert_shared_count": (0,), "expert_shared_feed_forward_length": (0,)}
NO_DENSE_LAYERS = {"leading_dense_block_count": (0,)}
"""For `refuse_all_but`: what some families have and others do not."""


class Block:
    """One layer: attention, then the feed-forward network, each on the normed input, and added to it."""

    def __init__(
        self,
        attention_norm: RmsNorm,
        attention: GroupedQueryAttention | LatentAttention,
        ffn_norm: RmsNorm,
        ffn: Mlp | MoeLayer,
    ) -> None:
        self.cache_shape = attention.cache_shape
        self._backend = attention_norm.backend
        self._attention_norm = attention_norm
        self._attention = attention
        self._ffn_norm = ffn_norm
        self._ffn = ffn

    def __call__(self, x: Floats, batch: Batch, turns: Turns, cache: KVCache) -> Floats:
        """(T, H) -> (T, H); adds the batch to the cache."""
        x = self._backend.add(x, self._attention(self._attention_norm(x), batch, turns, cache))
        return self._backend.add(x, self._ffn(self._ffn_norm(x), batch.is_decode))


class Decoder:
    """Embedding, layers, norm, head. A family says what its layers are."""

    computes: ClassVar[frozenset[str]] = frozenset()
    """Keys of UNKNOWN_VARIANTS that the family does know, and reads itself."""

    def __init__(self, hparams: Metadata, weights: Weights, rope: Rope, blocks: Sequence[Block]) -> None:
        """UnsupportedError where the file has more than the layers asked for."""
        hidden = hparams.integer("embedding_length", minimum=1)
        self.context_length = hparams.integer("context_length", minimum=1)
        """Tokens it was trained for."""
        self.cache_shapes = [block.cache_shape for block in blocks]
        """What each layer keeps of a token."""
        self.backend = weights.backend
        self.recorder: Callable[[], Recorder] = self.backend.program
        """Makes what a decode step is recorded with."""
        self._rope = rope
        self._blocks = blocks
        self._embedding = Embedding(weights, hidden)
        self._output_norm = RmsNorm(weights, "output_norm", hidden, rms_epsilon(hparams))
        self.vocab_size = self._embedding.vocab_size
        self.packables = weights.packables
        """The layers whose weights may be packed."""
        self.moe_layers = [layer for layer in weights.packables if isinstance(layer, MoeLayer)]
        """From the first to the last."""
        self.tensor_names = weights.used_names
        """All that it computes with."""
        weights.finish(_NextTokenTensors(hparams))

    def forward(self, batch: Batch, cache: KVCache, before_layer: Callable[[], None] = lambda: None) -> Floats:
        """Hidden states after the last norm, (T, H); adds the batch to the cache. before_layer: what it raises ends the
        batch.

        All of it is operations of the backend and views of their arrays, so that a program can take it up. Damaged
        weights make values that are no finite numbers: they go on to the logits, where they are seen.
        """
        x = self._embedding(batch.token_ids)
        turns = self._rope.turns(self.backend, batch.positions)
        for block in self._blocks:
            before_layer()
            x = block(x, batch, turns, cache)
        return self._output_norm(x)

    def lm_head(self, hidden: Floats) -> Floats:
        """(T, H) -> logits (T, V)."""
        return self._embedding.logits(hidden)


class Family(Protocol):
    """The MODEL of a model file."""

    computes: ClassVar[frozenset[str]]

    def __call__(self, file: GGUFFile, backend: Backend) -> Decoder:
        """Maps the weights. ModelFileError or UnsupportedError where the file is not of this architecture."""


def num_blocks(hparams: Metadata) -> int:
    """As the file counts: the layers, and behind them the blocks that predict the token after the next."""
    return hparams.integer("block_count", minimum=1, maximum=MAX_BLOCKS)


def num_layers(hparams: Metadata) -> int:
    """Without the blocks for the token after the next, which are left out."""
    blocks = num_blocks(hparams)
    return blocks - hparams.integer("nextn_predict_layers", 0, minimum=0, maximum=blocks - 1)


def num_dense_layers(hparams: Metadata) -> int:
    """How many first layers have no experts."""
    return hparams.integer("leading_dense_block_count", 0, minimum=0, maximum=num_layers(hparams))


def rms_epsilon(hparams: Metadata) -> float:
    return hparams.number("attention.layer_norm_rms_epsilon", minimum=0.0)


def feed_forward_width(hparams: Metadata, layer: int) -> int:
    """Of a dense network: the file has one number for all layers, or one for each."""
    return hparams.per_layer("feed_forward_length", num_blocks(hparams), minimum=1, maximum=MAX_WIDTH)[layer]


def expert_width(hparams: Metadata) -> int:
    return hparams.integer("expert_feed_forward_length", minimum=1, maximum=MAX_WIDTH)


def shared_expert_width(hparams: Metadata) -> int:
    """Of the experts that are always on, which are one network; 0 where there are none."""
    width = hparams.integer("expert_shared_count", 0, minimum=0) * expert_width(hparams)
    refuse_all_but(hparams, {"expert_shared_feed_forward_length": (0, width)})
    return width


def refuse_all_but(hparams: Metadata, known: Mapping[str, tuple[float, ...]]) -> None:
    """UnsupportedError where a key has a value, or one in its array, that is not among the known ones."""
    for key, values in known.items():
        if not set(hparams.numbers(key)) <= set(values):
            raise hparams.unsupported(key, " or ".join(map(str, values)))


class _NextTokenTensors:
    """Whether a tensor is of a block for the token after the next."""

    def __init__(self, hparams: Metadata) -> None:
        blocks = range(num_layers(hparams), num_blocks(hparams))
        self._prefixes = tuple(f"blk.{block}." for block in blocks)

    def __call__(self, name: str) -> bool:
        return name.startswith(self._prefixes)
