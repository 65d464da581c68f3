"""Each kernel once more in numpy, in float64 where it adds up: the definition of right, and slow."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ktdesk_engine.kernels import (
    Activation,
    AttentionRule,
    ExpertMlp,
    ExpertWeight,
    Floats,
    Ids,
    PagedContext,
    RopePairing,
    Weight,
)
from ktdesk_engine.quants import formats as quants

Doubles = npt.NDArray[np.float64]


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


def activate(activation: Activation, gate: Doubles, up: Doubles) -> Doubles:
    """Elementwise, any shape."""
    if activation is Activation.SWIGLU:
        return gate / (1 + np.exp(-gate)) * up
    g, u = np.minimum(gate, 7.0), np.clip(up, -7.0, 7.0)
    return g / (1 + np.exp(-1.702 * g)) * (u + 1)


def _one_expert(expert_weight: ExpertWeight, expert: int, x: Doubles) -> Doubles:
    weight = expert_weight.weight
    product = x @ quants.dequantize(weight.blocks[expert], weight.type).astype(np.float64).T
    return product if expert_weight.bias is None else product + expert_weight.bias[expert]


def expert_mlp(mlp: ExpertMlp, x: Floats, ids: Ids, weights: Floats) -> Doubles:
    """x (T, H), ids and weights (T, K) -> (T, H)."""
    out = np.zeros(x.shape)
    for t, (experts, shares) in enumerate(zip(ids, weights, strict=True)):
        for expert, share in zip(experts, shares, strict=True):
            hidden = activate(mlp.activation, _one_expert(mlp.gate, expert, x[t]), _one_expert(mlp.up, expert, x[t]))
            out[t] += share * _one_expert(mlp.down, expert, hidden)
    return out


def attention(queries: Floats, keys: Floats, values: Floats, context: PagedContext, rule: AttentionRule) -> Doubles:
    """queries (T, heads, D); keys, values (pages, page_size, key heads, D) -> (T, heads, value D)."""
    num_tokens, num_heads, _ = queries.shape
    _, page_size, num_kv_heads, value_length = values.shape
    out = np.empty((num_tokens, num_heads, value_length))
    for t in range(num_tokens):
        end = int(context.positions[t]) + 1
        positions = np.arange(max(0, end - rule.window) if rule.window else 0, end)
        pages = context.page_tables[context.sequences[t]][positions // page_size]
        seen_keys = keys[pages, positions % page_size].astype(np.float64)  # (P, key heads, D)
        seen_values = values[pages, positions % page_size].astype(np.float64)
        for head in range(num_heads):
            kv_head = head * num_kv_heads // num_heads
            scores = rule.scale * (seen_keys[:, kv_head] @ queries[t, head].astype(np.float64))
            if rule.soft_cap:
                scores = rule.soft_cap * np.tanh(scores / rule.soft_cap)
            sink = [] if rule.sinks is None else [rule.sinks[head]]
            largest = np.max([*scores, *sink])
            shares = np.exp(scores - largest)
            total = shares.sum() + sum(np.exp(s - largest) for s in sink)
            out[t, head] = shares / total @ seen_values[:, kv_head]
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
