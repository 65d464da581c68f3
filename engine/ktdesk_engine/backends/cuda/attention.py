"""Attention on a device over pages that lie there."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch.nn import functional

from ktdesk_engine.backends.cuda.attention_kernels import join_kernel, part_kernel
from ktdesk_engine.kernels import cached_row_bytes
from ktdesk_engine.quants.formats import WeightType

MAX_DECODE_TOKENS = 16
"""More tokens are a prompt, and go through torch's fused attention."""
NUM_PARTS = 16
"""Of the context of a token. Empty ones cost little, but for Triton's interpreter, which has fewer."""
INTERPRETED_PARTS = 2
MIN_BLOCK = 16
"""The least side of what `tl.dot` multiplies."""

TORCH_TYPES = {WeightType.F32: torch.float32, WeightType.F16: torch.float16, WeightType.BF16: torch.bfloat16}
_PRODUCT_TYPES = {WeightType.F16: tl.float16, WeightType.BF16: tl.bfloat16}


@dataclass(frozen=True)
class DeviceRows:
    """Keys or values of one layer, as `kernels.CachedRows` has them, but on the device."""

    type: WeightType
    length: int
    pages: torch.Tensor
    """(pages, heads, page_size, row bytes) uint8"""

    @property
    def halves(self) -> torch.Tensor:
        """In the type's own elements; of q8_0 the scales, in float16."""
        return self.pages.view(TORCH_TYPES.get(self.type, torch.float16))

    @property
    def row(self) -> int:
        """The size of a cached head: in elements, of q8_0 in bytes."""
        return int(self.pages.shape[-1] if self.type is WeightType.Q8_0 else self.halves.shape[-1])

    @property
    def page(self) -> int:
        """How far one page is from the next, in the same: they may lie among those of other layers."""
        return int((self.pages if self.type is WeightType.Q8_0 else self.halves).stride(0))


@dataclass(frozen=True)
class DeviceContext:
    """`kernels.PagedContext` on the device."""

    page_tables: torch.Tensor
    """(S, max pages) int32"""
    sequences: torch.Tensor
    """(T,) int32"""
    positions: torch.Tensor
    """(T,) int32"""


@dataclass(frozen=True)
class DeviceRule:
    """`kernels.AttentionRule` with its sinks on the device."""

    scale: float
    window: int
    soft_cap: float
    sinks: torch.Tensor | None


def store_rows(rows: DeviceRows, context: DeviceContext, x: torch.Tensor) -> None:
    """Writes x (T, heads, length) to where the tokens stand, as the type of the rows has it.

    Finite numbers stay finite, as on the CPU.
    """
    page_size = rows.pages.shape[2]
    positions = context.positions.long()
    pages = context.page_tables[context.sequences.long(), positions // page_size].long()
    stored = _encoded(rows.type, x)
    width = stored.shape[-1]
    if width < rows.pages.shape[-1]:
        stored = functional.pad(stored, (0, rows.pages.shape[-1] - width))
    rows.pages[pages, :, positions % page_size] = stored


def _encoded(weight_type: WeightType, x: torch.Tensor) -> torch.Tensor:
    """(T, heads, length) -> (T, heads, bytes)."""
    x = x.contiguous()
    if weight_type is WeightType.Q8_0:
        return _q8_0(x)
    dtype = TORCH_TYPES[weight_type]
    if dtype is not torch.float32:
        limit = torch.finfo(dtype).max
        x = torch.where(torch.isinf(x), torch.nan, x.clamp(-limit, limit))
    return x.to(dtype).view(torch.uint8)


def _q8_0(x: torch.Tensor) -> torch.Tensor:
    padded = functional.pad(x, (0, -x.shape[-1] % 32))
    blocks = padded.reshape(*x.shape[:-1], -1, 32)
    finite = torch.isfinite(blocks).all(-1, keepdim=True)
    known = torch.where(finite, blocks, 0.0)
    scales = (known.abs().amax(-1, keepdim=True) / 127).clamp(max=65504).to(torch.float16)
    inverse = torch.where(scales > 0, 1 / scales.float(), 0.0)
    codes = (known * inverse).clamp(-127, 127).round().to(torch.int8)
    scales = torch.where(finite, scales, torch.nan)
    stored = torch.cat([scales.view(torch.uint8), codes.view(torch.uint8)], dim=-1)
    return stored.reshape(*x.shape[:-1], -1)


def attention(
    queries: torch.Tensor, keys: DeviceRows, values: DeviceRows, context: DeviceContext, rule: DeviceRule
) -> torch.Tensor:
    """queries (T, heads, D) over cached keys and values -> (T, heads, value D), float32."""
    if len(queries) <= MAX_DECODE_TOKENS:
        return split_attention(queries, keys, values, context, rule)
    return prompt_attention(queries, keys, values, context, rule)


def split_attention(
    queries: torch.Tensor, keys: DeviceRows, values: DeviceRows, context: DeviceContext, rule: DeviceRule
) -> torch.Tensor:
    """For few tokens: the context in parts, in Triton."""
    num_tokens, num_heads, key_length = queries.shape
    num_kv_heads, page_size = keys.pages.shape[1:3]
    first, rest = _pieces(key_length)
    in_keys = values.pages is keys.pages and values.length == first
    block_value = max(MIN_BLOCK, triton.next_power_of_2(values.length))
    heads_per_kv = num_heads // num_kv_heads
    num_parts = NUM_PARTS if queries.device.type == "cuda" else INTERPRETED_PARTS
    parts = (num_tokens, num_heads, num_parts)
    mixed = queries.new_empty(*parts, values.length)
    largest_and_sum = queries.new_empty(*parts, 2)
    grid = (num_tokens, num_kv_heads * triton.cdiv(heads_per_kv, MIN_BLOCK), num_parts)
    part_kernel[grid](
        queries.contiguous(), keys.halves, keys.pages.view(torch.int8), values.halves, values.pages.view(torch.int8),
        context.page_tables, context.sequences, context.positions, mixed, largest_and_sum,
        num_heads, heads_per_kv, key_length, values.length, keys.page, keys.row, values.page, values.row,
        context.page_tables.shape[1], rule.window, rule.scale, rule.soft_cap,
        PAGE_SIZE=page_size, NUM_PARTS=num_parts, BLOCK_HEADS=MIN_BLOCK, FIRST=first, REST=rest,
        BLOCK_VALUE=block_value, TYPE=_product_type(keys), IS_Q8_0=keys.type is WeightType.Q8_0,
        VALUES_IN_KEYS=in_keys, HAS_SOFT_CAP=rule.soft_cap > 0, PRECISION="ieee",
    )  # fmt: skip
    out = queries.new_empty(num_tokens, num_heads, values.length)
    join_kernel[num_tokens, num_heads](
        mixed, largest_and_sum, rule.sinks, out, num_heads, values.length, NUM_PARTS=num_parts,
        BLOCK_VALUE=block_value, HAS_SINKS=rule.sinks is not None,
    )  # fmt: skip
    return out


def _product_type(rows: DeviceRows) -> tl.dtype:
    """What queries and shares are rounded to. Triton's interpreter cannot multiply bfloat16."""
    on_gpu = rows.pages.device.type == "cuda"
    return _PRODUCT_TYPES.get(rows.type, tl.float32) if on_gpu or rows.type is WeightType.F16 else tl.float32


def _pieces(length: int) -> tuple[int, int]:
    """A power of two and what is left, or none: the pieces of a head."""
    first = max(MIN_BLOCK, 1 << length.bit_length() - 1)
    return first, max(MIN_BLOCK, triton.next_power_of_2(length - first)) if length > first else 0


def prompt_attention(
    queries: torch.Tensor, keys: DeviceRows, values: DeviceRows, context: DeviceContext, rule: DeviceRule
) -> torch.Tensor:
    """For many tokens of one or more sequences: torch's fused attention over the gathered context."""
    out = queries.new_empty(*queries.shape[:2], values.length)
    for sequence in torch.unique(context.sequences).tolist():
        tokens = (context.sequences == sequence).nonzero()[:, 0]
        out[tokens] = _of_sequence(queries[tokens], keys, values, context, rule, sequence, tokens)
    return out


def _of_sequence(
    queries: torch.Tensor, keys: DeviceRows, values: DeviceRows, context: DeviceContext, rule: DeviceRule,
    sequence: int, tokens: torch.Tensor,
) -> torch.Tensor:  # fmt: skip
    positions = context.positions[tokens].long()
    num_positions = int(positions.max()) + 1
    pages = context.page_tables[sequence, : math.ceil(num_positions / keys.pages.shape[2])].long()
    seen_keys, seen_values = _gathered(keys, pages, num_positions), _gathered(values, pages, num_positions)
    columns = torch.arange(num_positions, device=queries.device)
    seen = columns <= positions[:, None]
    if rule.window:
        seen &= columns > positions[:, None] - rule.window
    if rule.soft_cap:
        return _capped(queries, seen_keys, seen_values, seen, rule)
    return _fused(queries, seen_keys, seen_values, seen, rule)


def _gathered(rows: DeviceRows, pages: torch.Tensor, num_positions: int) -> torch.Tensor:
    """(heads, positions, length), in bfloat16 or float16, or float32 where the cache is."""
    chosen = rows.pages[pages].transpose(0, 1).reshape(rows.pages.shape[1], -1, rows.pages.shape[-1])
    chosen = chosen[:, :num_positions]
    if rows.type is WeightType.Q8_0:
        width = cached_row_bytes(rows.type, rows.length)
        blocks = chosen[..., :width].reshape(*chosen.shape[:-1], -1, 34)
        scales = blocks[..., :2].contiguous().view(torch.float16).float()
        return (scales * blocks[..., 2:].view(torch.int8).float()).flatten(-2)[..., : rows.length]
    return chosen.contiguous().view(TORCH_TYPES[rows.type])[..., : rows.length]


def _fused(
    queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, seen: torch.Tensor, rule: DeviceRule
) -> torch.Tensor:
    """A sink is one more key, of zeros, whose score the mask holds and whose value is zero."""
    num_heads = queries.shape[1]
    mask = torch.zeros(seen.shape, dtype=keys.dtype, device=seen.device).masked_fill_(~seen, -math.inf)[None]
    if rule.sinks is not None:
        keys, values = functional.pad(keys, (0, 0, 0, 1)), functional.pad(values, (0, 0, 0, 1))
        sinks = rule.sinks.to(keys.dtype)[:, None, None].expand(-1, len(queries), 1)
        mask = torch.cat([mask.expand(num_heads, -1, -1), sinks], dim=-1)
    out = functional.scaled_dot_product_attention(
        queries.transpose(0, 1).to(keys.dtype)[None], keys[None], values[None], mask[None], scale=rule.scale,
        enable_gqa=True,
    )  # fmt: skip
    return out[0].transpose(0, 1).float()


def _capped(
    queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, seen: torch.Tensor, rule: DeviceRule
) -> torch.Tensor:
    """With a soft cap, which no fused attention has: the scores of one head after another."""
    out = queries.new_empty(*queries.shape[:2], values.shape[-1])
    heads_per_kv = queries.shape[1] // len(keys)
    for head in range(queries.shape[1]):
        scores = rule.scale * (queries[:, head].to(keys.dtype) @ keys[head // heads_per_kv].T).float()
        scores = (rule.soft_cap * torch.tanh(scores / rule.soft_cap)).masked_fill(~seen, -math.inf)
        if rule.sinks is not None:
            scores = torch.cat([scores, rule.sinks[head].expand(len(scores), 1)], dim=1)
        shares = torch.softmax(scores, dim=1)[:, : len(values[0])]
        out[:, head] = (shares.to(values.dtype) @ values[head // heads_per_kv]).float()
    return out
