"""Triton kernels of attention over the paged cache, split along the context.

The context of a token is cut into parts; a program mixes the values of one part for up to BLOCK_HEADS query heads
that share a key head, with the largest score and the sum of shares beside it; a second kernel joins the parts.
How many parts there are does not depend on the positions, so a recorded step holds for all of them. Pages have the
bytes that they have on the CPU (kv_cache.py).

A head's elements come in two pieces, each a power of two: all of the first piece are there, those of the rest may
end early. Latent attention has 512 + 64 of them, and its values are the first piece of its keys.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def load_rows(halves, codes, row_at, first, BLOCK: tl.constexpr, length, mask, IS_Q8_0: tl.constexpr):
    """Elements first .. first + BLOCK of rows, (positions, BLOCK); behind length zeros.

    row_at (positions,): where rows begin, in elements of halves; of q8_0 (34 bytes for 32 values) in bytes.
    """
    i = first + tl.arange(0, BLOCK)
    inside = mask[:, None] & (i < length)[None, :]
    if IS_Q8_0:
        block_at = row_at[:, None] + (i // 32 * 34)[None, :]
        scale = tl.load(halves + block_at // 2, inside, 0.0).to(tl.float32)
        values = scale * tl.load(codes + block_at + 2 + (i % 32)[None, :], inside, 0).to(tl.float32)
    else:
        values = tl.load(halves + row_at[:, None] + i[None, :], inside, 0.0)
    return values


@triton.jit
def load_queries(queries, at, first, BLOCK: tl.constexpr, length, mask, TYPE: tl.constexpr):
    """(heads, BLOCK) in the type that products are made of; what float16 cannot hold becomes its largest."""
    i = first + tl.arange(0, BLOCK)
    values = tl.load(queries + at[:, None] + i[None, :], mask[:, None] & (i < length)[None, :], 0.0)
    if tl.float16 == TYPE:
        values = tl.minimum(tl.maximum(values, -65504.0), 65504.0)
    return values.to(TYPE)


@triton.jit
def part_kernel(
    queries, key_halves, key_codes, value_halves, value_codes, page_tables, sequences, positions, mixed,
    largest_and_sum, num_heads, heads_per_kv, key_length, value_length, key_page, key_row, value_page, value_row,
    max_pages, window, scale, soft_cap,
    PAGE_SIZE: tl.constexpr, NUM_PARTS: tl.constexpr, BLOCK_HEADS: tl.constexpr, FIRST: tl.constexpr,
    REST: tl.constexpr, BLOCK_VALUE: tl.constexpr, TYPE: tl.constexpr, IS_Q8_0: tl.constexpr,
    VALUES_IN_KEYS: tl.constexpr, HAS_SOFT_CAP: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Grid: (T, key heads * blocks of their query heads, NUM_PARTS).

    queries (T, heads, key_length), mixed (T, heads, NUM_PARTS, value_length), largest_and_sum (T, heads,
    NUM_PARTS, 2). key_row, value_row: elements, or bytes of q8_0, of a cached head; key_page, value_page: from one
    page to the next.
    """
    token, part = tl.program_id(0), tl.program_id(2)
    blocks_per_kv = tl.cdiv(heads_per_kv, BLOCK_HEADS)
    kv_head = tl.program_id(1) // blocks_per_kv
    in_group = tl.program_id(1) % blocks_per_kv * BLOCK_HEADS + tl.arange(0, BLOCK_HEADS)
    head_mask = in_group < heads_per_kv
    head = kv_head * heads_per_kv + in_group
    query_at = (token.to(tl.int64) * num_heads + head) * key_length
    first_queries = load_queries(queries, query_at, 0, FIRST, key_length, head_mask, TYPE)
    if REST > 0:
        rest_queries = load_queries(queries, query_at, FIRST, REST, key_length, head_mask, TYPE)

    last = tl.load(positions + token)
    first = tl.where(window > 0, tl.maximum(last + 1 - window, 0), 0)
    first_page = first // PAGE_SIZE
    pages_per_part = tl.cdiv(last // PAGE_SIZE + 1 - first_page, NUM_PARTS)
    begin = first_page + part * pages_per_part
    end = tl.minimum(begin + pages_per_part, last // PAGE_SIZE + 1)
    table = page_tables + tl.load(sequences + token) * max_pages

    largest = tl.full((BLOCK_HEADS,), float("-inf"), tl.float32)
    total = tl.zeros((BLOCK_HEADS,), tl.float32)
    out = tl.zeros((BLOCK_HEADS, BLOCK_VALUE), tl.float32)
    for index in range(begin, end):
        page = tl.load(table + index).to(tl.int64)
        slot = tl.arange(0, PAGE_SIZE)
        position = index * PAGE_SIZE + slot
        seen = (position >= first) & (position <= last)
        row = kv_head * PAGE_SIZE + slot
        key_at = page * key_page + row * key_row
        keys = load_rows(key_halves, key_codes, key_at, 0, FIRST, key_length, seen, IS_Q8_0).to(TYPE)
        scores = tl.dot(first_queries, tl.trans(keys), input_precision=PRECISION)
        if REST > 0:
            more = load_rows(key_halves, key_codes, key_at, FIRST, REST, key_length, seen, IS_Q8_0).to(TYPE)
            scores += tl.dot(rest_queries, tl.trans(more), input_precision=PRECISION)
        scores = scores * scale
        if HAS_SOFT_CAP:
            scores = soft_cap * (1 - 2 / (1 + tl.exp(2 * scores / soft_cap)))
        scores = tl.where(seen[None, :], scores, float("-inf"))
        new_largest = tl.maximum(largest, tl.max(scores, axis=1))
        shares = tl.exp(scores - new_largest[:, None])
        kept = tl.exp(largest - new_largest)
        total = total * kept + tl.sum(shares, axis=1)
        if VALUES_IN_KEYS:
            values = keys
        else:
            values = load_rows(
                value_halves, value_codes, page * value_page + row * value_row, 0, BLOCK_VALUE, value_length, seen,
                IS_Q8_0,
            ).to(TYPE)  # fmt: skip
        out = out * kept[:, None] + tl.dot(shares.to(TYPE), values, input_precision=PRECISION)
        largest = new_largest

    place = (token.to(tl.int64) * num_heads + head) * NUM_PARTS + part
    tl.store(largest_and_sum + 2 * place, largest, head_mask)
    tl.store(largest_and_sum + 2 * place + 1, total, head_mask)
    i = tl.arange(0, BLOCK_VALUE)
    tl.store(mixed + place[:, None] * value_length + i[None, :], out, head_mask[:, None] & (i < value_length)[None, :])


@triton.jit
def join_kernel(
    mixed, largest_and_sum, sinks, out, num_heads, value_length,
    NUM_PARTS: tl.constexpr, BLOCK_VALUE: tl.constexpr, HAS_SINKS: tl.constexpr,
):  # fmt: skip
    """The parts of one head of one token. Grid: (T, heads). A sink is a share without a value."""
    place = tl.program_id(0).to(tl.int64) * num_heads + tl.program_id(1)
    part = place * NUM_PARTS + tl.arange(0, NUM_PARTS)
    largest = tl.load(largest_and_sum + 2 * part)
    overall = tl.max(largest, axis=0)
    if HAS_SINKS:
        sink = tl.load(sinks + tl.program_id(1))
        overall = tl.maximum(overall, sink)
    weight = tl.exp(largest - overall)
    total = tl.sum(weight * tl.load(largest_and_sum + 2 * part + 1), axis=0)
    if HAS_SINKS:
        total += tl.exp(sink - overall)
    i = tl.arange(0, BLOCK_VALUE)
    mask = i < value_length
    values = tl.load(mixed + part[:, None] * value_length + i[None, :], mask[None, :], 0.0)
    tl.store(out + place * value_length + i, tl.sum(values * weight[:, None], axis=0) / total, mask)
