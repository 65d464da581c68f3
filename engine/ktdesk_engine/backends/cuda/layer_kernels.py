"""Triton kernels of what lies between the products: norms, rope, the choice of experts, activations."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def rms_norm_kernel(x, weight, out, length, x_stride, out_stride, epsilon, BLOCK: tl.constexpr):
    """x / sqrt(mean(x²) + epsilon) * weight, a row a program; out may be x."""
    row = tl.program_id(0).to(tl.int64)
    i = tl.arange(0, BLOCK)
    mask = i < length
    values = tl.load(x + row * x_stride + i, mask, 0.0)
    scale = 1 / tl.sqrt(tl.sum(values * values, axis=0) / length + epsilon)
    tl.store(out + row * out_stride + i, values * scale * tl.load(weight + i, mask, 0.0), mask)


@triton.jit
def rope_kernel(x, cosines, sines, num_pairs, token_stride, head_stride, NEIGHBOURS: tl.constexpr, BLOCK: tl.constexpr):
    """In place. Grid: (T, heads). Pairs are (2i, 2i + 1) or (i, i + pairs)."""
    token = tl.program_id(0).to(tl.int64)
    at = x + token * token_stride + tl.program_id(1).to(tl.int64) * head_stride
    i = tl.arange(0, BLOCK)
    mask = i < num_pairs
    if NEIGHBOURS:
        first_at, second_at = at + 2 * i, at + 2 * i + 1
    else:
        first_at, second_at = at + i, at + i + num_pairs
    first, second = tl.load(first_at, mask, 0.0), tl.load(second_at, mask, 0.0)
    cosine = tl.load(cosines + token * num_pairs + i, mask, 0.0)
    sine = tl.load(sines + token * num_pairs + i, mask, 0.0)
    tl.store(first_at, first * cosine - second * sine, mask)
    tl.store(second_at, first * sine + second * cosine, mask)


@triton.jit
def sigmoid(x):
    """Without overflow on either side."""
    shrunk = tl.exp(-tl.abs(x))
    return tl.where(x >= 0, 1.0, shrunk) / (1 + shrunk)


@triton.jit
def activation_kernel(
    gate, up, out, count, limit,
    SWIGLU: tl.constexpr, SWIGLU_OAI: tl.constexpr, CLAMPED_GATE: tl.constexpr, KIND: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """`kernels.Activation` KIND of gate and up, elementwise."""
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = i < count
    g, u = tl.load(gate + i, mask, 0.0), tl.load(up + i, mask, 0.0)
    if KIND == SWIGLU:
        result = g * sigmoid(g) * u
    elif KIND == SWIGLU_OAI:
        g = tl.minimum(g, 7.0)
        result = g * sigmoid(1.702 * g) * (tl.minimum(tl.maximum(u, -7.0), 7.0) + 1)
    else:
        u = tl.minimum(tl.maximum(u, -limit), limit)
        if KIND == CLAMPED_GATE:
            g = tl.minimum(g, limit)
            result = g * sigmoid(g) * u
        else:
            result = tl.minimum(g * sigmoid(g), limit) * u
    tl.store(out + i, result, mask)


@triton.jit
def routing_kernel(
    logits, selection_bias, ids, weights, num_experts, num_used, num_groups, num_groups_used, scale, smallest_sum,
    HAS_BIAS: tl.constexpr, SIGMOID: tl.constexpr, SOFTMAX: tl.constexpr, NORMALIZE: tl.constexpr,
    GROUPED: tl.constexpr, BLOCK_EXPERTS: tl.constexpr, BLOCK_USED: tl.constexpr, BLOCK_GROUPS: tl.constexpr,
):  # fmt: skip
    """`kernels.routing.choose_experts`, a token a program. Neither SIGMOID nor SOFTMAX: softmax of the chosen."""
    token = tl.program_id(0).to(tl.int64)
    expert = tl.arange(0, BLOCK_EXPERTS)
    exists = expert < num_experts
    logit = tl.load(logits + token * num_experts + expert, exists, float("-inf"))
    if SOFTMAX:
        shares = tl.exp(logit - tl.max(logit, axis=0))
        score = shares / tl.sum(shares, axis=0)
    elif SIGMOID:
        score = sigmoid(logit)
    else:
        score = logit
    selection = score
    if HAS_BIAS:
        selection = selection + tl.load(selection_bias + expert, exists, 0.0)
    selection = tl.where(exists, selection, float("-inf"))
    if GROUPED:
        group_size = num_experts // num_groups
        group = tl.arange(0, BLOCK_GROUPS)
        quality = tl.full((BLOCK_GROUPS,), float("-inf"), tl.float32)
        for index in range(num_groups):
            member = tl.where(expert // group_size == index, selection, float("-inf"))
            best = tl.argmax(member, axis=0)
            second = tl.max(tl.where(expert == best, float("-inf"), member), axis=0)
            both = tl.max(member, axis=0) + tl.where(group_size > 1, second, 0.0)
            quality = tl.where(group == index, both, quality)
        allowed = tl.zeros((BLOCK_EXPERTS,), tl.int32)
        for _ in range(num_groups_used):
            best = tl.argmax(quality, axis=0)
            allowed = tl.where(expert // group_size == best, 1, allowed)
            quality = tl.where(group == best, float("-inf"), quality)
        selection = tl.where(allowed > 0, selection, float("-inf"))
    used = tl.arange(0, BLOCK_USED)
    chosen = tl.full((BLOCK_USED,), float("-inf"), tl.float32)
    for index in range(num_used):
        best = tl.minimum(tl.argmax(selection, axis=0), num_experts - 1)
        tl.store(ids + token * num_used + index, best.to(tl.int32))
        chosen = tl.where(used == index, tl.sum(tl.where(expert == best, score, 0.0), axis=0), chosen)
        selection = tl.where(expert == best, float("-inf"), selection)
    is_used = used < num_used
    if (not SOFTMAX) and (not SIGMOID):
        chosen = tl.exp(chosen - tl.max(chosen, axis=0))
        chosen = chosen / tl.sum(chosen, axis=0)
    chosen = tl.where(is_used, chosen, 0.0)
    if NORMALIZE:
        chosen = chosen / tl.maximum(tl.sum(chosen, axis=0), smallest_sum)
    tl.store(weights + token * num_used + used, chosen * scale, is_used)
