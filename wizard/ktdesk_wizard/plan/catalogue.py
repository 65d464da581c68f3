"""A model of the catalogue as the planner sees one: the tensors that a file of such a shape has.

Sizes are those of 16-bit floats; `quantization.requantized` gives it the bits of a quantization.
"""

from __future__ import annotations

from collections.abc import Iterator

from ktdesk_engine.quants.formats import BLOCKS, WeightType
from ktdesk_profiles.models import DeltaNet, GroupedQuery, Latent, Mamba2, ModelProfile
from ktdesk_wizard.plan.cache import LayerCache, grouped_query, latent, recurrent
from ktdesk_wizard.plan.model import EMBEDDING, HEAD, PlannedModel, PlannedTensor

PLAIN = "F16"


def model_of_profile(profile: ModelProfile) -> PlannedModel:
    return PlannedModel(
        name=profile.title,
        source=profile.name,
        architecture=profile.architecture,
        quantization=PLAIN,
        context_length=profile.context,
        hidden=profile.hidden,
        vocab_size=profile.vocabulary,
        num_experts=profile.experts.count,
        num_used=profile.experts.used,
        expert_width=profile.experts.width,
        num_heads=profile.attention.heads,
        layers=tuple(_cache(profile, layer) for layer in range(profile.layers)),
        tensors=tuple(_tensors(profile)),
        left_out_bytes=0,
        is_estimate=True,
    )


def _has_attention(profile: ModelProfile, layer: int) -> bool:
    """Evenly spread, the last layer being one."""
    if not profile.attention_layers:
        return True
    return (layer + 1) % (profile.layers // profile.attention_layers) == 0


def _has_experts(profile: ModelProfile, layer: int) -> bool:
    if profile.moe_layers:
        return (layer + 1) % (profile.layers // profile.moe_layers) == 0
    return layer >= profile.dense_layers


def _has_window(attention: GroupedQuery, layer: int) -> bool:
    return attention.window_period > 0 and (layer + 1) % attention.window_period != 0


def _cache(profile: ModelProfile, layer: int) -> LayerCache:
    attention, other = profile.attention, profile.recurrent
    if other is not None and not _has_attention(profile, layer):
        if isinstance(other, Mamba2):
            channels = other.inner + 2 * other.groups * other.state
            return recurrent(other.conv_kernel, channels, other.state * other.inner)
        inner = other.value_heads * other.length
        channels = inner + 2 * other.key_heads * other.length
        return recurrent(other.conv_kernel, channels, other.length * inner)
    if isinstance(attention, Latent):
        return latent(attention.latent_length, attention.turning_length)
    heads, key, value, window = _heads(attention, layer)
    return grouped_query(heads, key, value, window)


def _heads(attention: GroupedQuery, layer: int) -> tuple[int, int, int, int]:
    """(key/value heads, key length, value length, window)"""
    if not _has_window(attention, layer):
        return attention.kv_heads, attention.key_length, attention.value_length, 0
    length = attention.window_length
    key, value = length or attention.key_length, length or attention.value_length
    return attention.window_kv_heads or attention.kv_heads, key, value, attention.window


def _tensors(profile: ModelProfile) -> Iterator[PlannedTensor]:
    yield _tensor(EMBEDDING, profile.hidden, profile.vocabulary)
    if not profile.is_tied:
        yield _tensor(HEAD, profile.hidden, profile.vocabulary)
    yield _floats("output_norm.weight", profile.hidden)
    for layer in range(profile.layers):
        yield _floats(f"blk.{layer}.attn_norm.weight", profile.hidden)
        if profile.recurrent is not None and not _has_attention(profile, layer):
            yield from _recurrent(profile.recurrent, profile.hidden, layer)
        elif isinstance(profile.attention, Latent):
            yield from _latent(profile.attention, profile.hidden, layer)
        else:
            yield from _grouped_query(profile.attention, profile.hidden, layer)
        yield _floats(f"blk.{layer}.ffn_norm.weight", profile.hidden)
        yield from _feed_forward(profile, layer)


def _tensor(name: str, *shape: int) -> PlannedTensor:
    """The length of a row first."""
    return _made(name, shape, WeightType.F16)


def _floats(name: str, *shape: int) -> PlannedTensor:
    return _made(name, shape, WeightType.F32)


def _made(name: str, shape: tuple[int, ...], weight_type: WeightType) -> PlannedTensor:
    num_values = 1
    for size in shape:
        num_values *= size
    return PlannedTensor(name, shape, weight_type.name, num_values * BLOCKS[weight_type].bytes, weight_type)


def _grouped_query(a: GroupedQuery, hidden: int, layer: int) -> Iterator[PlannedTensor]:
    kv_heads, key, value, _ = _heads(a, layer)
    block = f"blk.{layer}.attn_"
    yield _tensor(f"{block}q.weight", hidden, a.heads * key * (2 if a.is_gated else 1))
    yield _tensor(f"{block}k.weight", hidden, kv_heads * key)
    yield _tensor(f"{block}v.weight", hidden, kv_heads * value)
    yield _tensor(f"{block}output.weight", a.heads * value, hidden)


def _latent(a: Latent, hidden: int, layer: int) -> Iterator[PlannedTensor]:
    block, query = f"blk.{layer}.attn_", a.heads * (a.still_length + a.turning_length)
    if a.query_rank:
        yield _tensor(f"{block}q_a.weight", hidden, a.query_rank)
        yield _tensor(f"{block}q_b.weight", a.query_rank, query)
    else:
        yield _tensor(f"{block}q.weight", hidden, query)
    yield _tensor(f"{block}kv_a_mqa.weight", hidden, a.latent_length + a.turning_length)
    yield _tensor(f"{block}k_b.weight", a.still_length, a.latent_length, a.heads)
    yield _tensor(f"{block}v_b.weight", a.latent_length, a.value_length, a.heads)
    yield _tensor(f"{block}output.weight", a.heads * a.value_length, hidden)


def _recurrent(r: DeltaNet | Mamba2, hidden: int, layer: int) -> Iterator[PlannedTensor]:
    block = f"blk.{layer}.ssm_"
    if isinstance(r, Mamba2):
        yield _tensor(f"{block}in.weight", hidden, 2 * r.inner + 2 * r.groups * r.state + r.heads)
        yield _tensor(f"{block}out.weight", r.inner, hidden)
        return
    keys, values = r.key_heads * r.length, r.value_heads * r.length
    yield _tensor(f"blk.{layer}.attn_qkv.weight", hidden, 2 * keys + values)
    yield _tensor(f"blk.{layer}.attn_gate.weight", hidden, values)
    yield _tensor(f"{block}ba.weight", hidden, 2 * r.value_heads)
    yield _tensor(f"{block}out.weight", values, hidden)


def _feed_forward(profile: ModelProfile, layer: int) -> Iterator[PlannedTensor]:
    e, hidden, block = profile.experts, profile.hidden, f"blk.{layer}.ffn_"
    if not _has_experts(profile, layer):
        yield from _mlp(block, "", hidden, profile.dense_width)
        return
    yield _floats(f"{block}gate_inp.weight", hidden, e.count)
    for name in ("gate", "up")[-(e.matrices - 1) :]:
        yield _tensor(f"{block}{name}_exps.weight", hidden, e.width, e.count)
    yield _tensor(f"{block}down_exps.weight", e.width, hidden, e.count)
    if e.shared_width:
        yield from _mlp(block, "_shexp", hidden, e.shared_width)
    if profile.beside_width:
        yield from _mlp(block, "", hidden, profile.beside_width)


def _mlp(block: str, suffix: str, hidden: int, width: int) -> Iterator[PlannedTensor]:
    yield _tensor(f"{block}gate{suffix}.weight", hidden, width)
    yield _tensor(f"{block}up{suffix}.weight", hidden, width)
    yield _tensor(f"{block}down{suffix}.weight", width, hidden)
