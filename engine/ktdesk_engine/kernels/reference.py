"""Each kernel once more in numpy, in float64 where it adds up: the definition of right, and slow."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from ktdesk_engine.kernels import (
    CACHE_PADDING,
    Activation,
    AttentionRule,
    CachedRows,
    ExpertMlp,
    ExpertWeight,
    Floats,
    Ids,
    PagedContext,
    RopePairing,
    Weight,
    cached_row_bytes,
)
from ktdesk_engine.quants import formats as quants
from ktdesk_engine.quants.formats import WeightType

Doubles = npt.NDArray[np.float64]
Bytes = npt.NDArray[np.uint8]


def _values(weight: Weight) -> Doubles:
    return quants.dequantize(weight.blocks, weight.type).astype(np.float64)


def linear(weight: Weight, x: Floats, bias: Floats | None = None) -> Doubles:
    """(T, row_length) -> (T, rows)."""
    product = x.astype(np.float64) @ _values(weight).T
    return product if bias is None else product + bias


def linear_per_head(weight: Weight, x: Floats) -> np.ndarray:
    """(T, heads, row_length) -> (T, heads, rows)."""
    return np.einsum("hrk,thk->thr", _values(weight), x.astype(np.float64))


def get_rows(weight: Weight, ids: Ids) -> Floats:
    """(T,) -> (T, row_length)."""
    return quants.dequantize(weight.blocks[ids], weight.type)


def _silu(x: Doubles) -> Doubles:
    return x / (1 + np.exp(-x))


def activate(activation: Activation, gate: Doubles, up: Doubles, limit: float = 0.0) -> Doubles:
    """Elementwise, any shape."""
    if activation is Activation.SWIGLU:
        return _silu(gate) * up
    if activation is Activation.CLAMPED_GATE:
        return _silu(np.minimum(gate, limit)) * np.clip(up, -limit, limit)
    if activation is Activation.CLAMPED_SILU:
        return np.minimum(_silu(gate), limit) * np.clip(up, -limit, limit)
    g, u = np.minimum(gate, 7.0), np.clip(up, -7.0, 7.0)
    return g / (1 + np.exp(-1.702 * g)) * (u + 1)


def _one_expert(expert_weight: ExpertWeight, expert: int, x: Doubles) -> Doubles:
    weight = expert_weight.weight
    product = x @ quants.dequantize(weight.blocks[expert], weight.type).astype(np.float64).T
    if expert_weight.scale is not None:
        product *= expert_weight.scale[expert]
    return product if expert_weight.bias is None else product + expert_weight.bias[expert]


def expert_mlp(mlp: ExpertMlp, x: Floats, ids: Ids, weights: Floats) -> Doubles:
    """x (T, H), ids and weights (T, K) -> (T, H)."""
    out = np.zeros(x.shape)
    for t, (experts, shares) in enumerate(zip(ids, weights, strict=True)):
        for expert, share in zip(experts, shares, strict=True):
            inner = x[t] * np.float64(share) if mlp.weighs_inputs else x[t]
            gate, up = _one_expert(mlp.gate, expert, inner), _one_expert(mlp.up, expert, inner)
            hidden = activate(mlp.activation, gate, up, mlp.limit)
            out[t] += (1 if mlp.weighs_inputs else share) * _one_expert(mlp.down, expert, hidden)
    return out


def cached_values(rows: CachedRows) -> Doubles:
    """What a cache holds: (pages, heads, page_size, length)."""
    num_bytes = cached_row_bytes(rows.type, rows.length)
    return quants.dequantize(rows.pages[..., :num_bytes], rows.type)[..., : rows.length].astype(np.float64)


def store_rows(rows: CachedRows, context: PagedContext, x: Floats) -> None:
    """x (T, heads, length) to where the tokens stand."""
    padded = np.zeros((*x.shape[:2], -(-rows.length // CACHE_PADDING) * CACHE_PADDING), np.float32)
    padded[..., : rows.length] = x
    stored = _ENCODERS[rows.type](padded)
    page_size = rows.pages.shape[2]
    pages = context.page_tables[context.sequences, context.positions // page_size]
    rows.pages[pages, :, context.positions % page_size, : stored.shape[-1]] = stored


def _bounded(x: Floats, limit: float) -> Floats:
    """Finite numbers within the limit, both zeros as zero; NaN for others."""
    return np.where(np.isfinite(x), np.clip(x, -limit, limit) + 0, np.nan).astype(np.float32)


def _to_f16(x: Floats) -> Bytes:
    return _bounded(x, 65504).astype("<f2").view(np.uint8)


def _to_bf16(x: Floats) -> Bytes:
    """The upper half of the bits, rounded: to the even one of two as near."""
    largest = float(np.array(0x7F7F0000, np.uint32).view(np.float32))
    bits = _bounded(x, largest).view(np.uint32)
    rounded = (bits + (0x7FFF + (bits >> np.uint32(16) & 1)).astype(np.uint32)) >> np.uint32(16)
    return np.where(np.isfinite(x), rounded, 0x7FC0).astype("<u2").view(np.uint8)


def _to_q8_0(x: Floats) -> Bytes:
    """Blocks of 32: the float16 scale, then codes in -127..127 against the scale as it is stored."""
    blocks = x.reshape(*x.shape[:-1], -1, 32)
    is_finite = np.isfinite(blocks).all(-1, keepdims=True)
    known = np.where(is_finite, blocks, 0).astype(np.float32)
    scales = _bounded(np.abs(known).max(-1, keepdims=True) / np.float32(127), 65504).astype("<f2")
    inverses = np.divide(1, scales, where=scales > 0, out=np.zeros(scales.shape, np.float32), dtype=np.float32)
    codes = np.rint(np.clip(known * inverses, -127, 127)).astype(np.int8)
    scales = np.where(is_finite, scales, np.float16(np.nan)).astype("<f2")
    stored = np.concatenate([scales.view(np.uint8), codes.view(np.uint8)], axis=-1)
    return stored.reshape(*x.shape[:-1], -1)


_ENCODERS: dict[WeightType, Callable[[Floats], Bytes]] = {
    WeightType.F32: lambda x: x.view(np.uint8),
    WeightType.F16: _to_f16,
    WeightType.BF16: _to_bf16,
    WeightType.Q8_0: _to_q8_0,
}


def attention(
    queries: Floats, keys: CachedRows, values: CachedRows, context: PagedContext, rule: AttentionRule
) -> Doubles:
    """queries (T, heads, D) over cached keys and values -> (T, heads, value D)."""
    num_tokens, num_heads, _ = queries.shape
    _, num_kv_heads, page_size, _ = keys.pages.shape
    all_keys, all_values = cached_values(keys), cached_values(values)
    out = np.empty((num_tokens, num_heads, values.length))
    for t in range(num_tokens):
        end = int(context.positions[t]) + 1
        positions = np.arange(max(0, end - rule.window) if rule.window else 0, end)
        pages = context.page_tables[context.sequences[t]][positions // page_size]
        for head in range(num_heads):
            kv_head = head * num_kv_heads // num_heads
            seen_keys = all_keys[pages, kv_head, positions % page_size]
            seen_values = all_values[pages, kv_head, positions % page_size]
            scores = rule.scale * (seen_keys @ queries[t, head].astype(np.float64))
            if rule.soft_cap:
                scores = rule.soft_cap * np.tanh(scores / rule.soft_cap)
            sink = [] if rule.sinks is None else [rule.sinks[head]]
            largest = np.max([*scores, *sink])
            shares = np.exp(scores - largest)
            total = shares.sum() + sum(np.exp(s - largest) for s in sink)
            out[t, head] = shares / total @ seen_values
    return out


def rms_norm(x: Floats, weight: Floats, epsilon: float) -> Doubles:
    """Over the last axis."""
    x64 = x.astype(np.float64)
    return x64 / np.sqrt(np.mean(x64**2, axis=-1, keepdims=True) + epsilon) * weight


def rope(x: Floats, cosines: Floats, sines: Floats, pairing: RopePairing) -> Doubles:
    """x (T, heads, D), cosines and sines (T, P) -> the turned copy."""
    pairs = cosines.shape[1]
    if pairing is RopePairing.NEIGHBOURS:
        first, second = slice(0, 2 * pairs, 2), slice(1, 2 * pairs, 2)
    else:
        first, second = slice(0, pairs), slice(pairs, 2 * pairs)
    out = x.astype(np.float64)
    a, b = out[..., first].copy(), out[..., second].copy()
    cos, sin = cosines[:, None, :], sines[:, None, :]
    out[..., first] = a * cos - b * sin
    out[..., second] = a * sin + b * cos
    return out


def gate(x: Floats, gates: Floats) -> Doubles:
    """x (T, H) times the sigmoids of gates (T, 1)."""
    with np.errstate(over="ignore"):  # of a large negative gate exp is infinite, and the sigmoid 0
        return x / (1 + np.exp(-gates.astype(np.float64)))


def join_heads(first: Floats, second: Floats) -> Floats:
    """(T, heads, A) and (T, heads, B) -> (T, heads, A + B)."""
    return np.concatenate([first, second], axis=-1)


def turns(positions: Ids, frequencies: Doubles, magnitude: float) -> tuple[Doubles, Doubles]:
    """Cosines and sines, (T, pairs) each."""
    angles = np.outer(positions, frequencies)
    return magnitude * np.cos(angles), magnitude * np.sin(angles)


def top_k(values: Floats, k: int) -> np.ndarray:
    """Ids of the k largest of (V,), largest first, the lower id first among equals."""
    return np.argsort(-values, kind="stable")[:k]


def count_not_finite(values: Floats) -> int:
    """Of (T, V)."""
    return int(np.count_nonzero(~np.isfinite(values)))
