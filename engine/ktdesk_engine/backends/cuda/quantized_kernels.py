"""Triton kernels over re-laid quantized weights (forms.py): products with vectors, and unpacking.

A program has BLOCK_ROWS rows of one matrix and goes along them BLOCK_RUNS runs at a time. A run is 32 values in
16 bytes for codes of 4 bits, a group of values for codes of 8 bits. Sums are float32, first within a group, then
times its scale. Rows of x are read again for each row of the matrix: they are few, and stay in the cache.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def scales_of(coarse, fine, rows, groups, coarse_per_row, groups_per_row, mask, GROUP: tl.constexpr,
              VALUES_PER_COARSE: tl.constexpr, HAS_FINE: tl.constexpr):  # fmt: skip
    """rows (R, 1) of a matrix, groups (1, G) -> (R, G)."""
    scale = tl.load(coarse + rows * coarse_per_row + groups * GROUP // VALUES_PER_COARSE, mask, 0.0).to(tl.float32)
    if HAS_FINE:
        scale = scale * tl.load(fine + rows * groups_per_row + groups, mask, 0).to(tl.float32)
    return scale


@triton.jit
def levels_of(codes, levels, ZERO: tl.constexpr, HAS_LEVELS: tl.constexpr):
    """What codes of 4 bits stand for."""
    if HAS_LEVELS:
        values = tl.load(levels + codes.to(tl.int32))
    else:
        values = (codes.to(tl.int32) - ZERO).to(tl.float32)
    return values


@triton.jit
def matrix_of(matrix_ids, block, HAS_IDS: tl.constexpr):
    """Whose rows a program has."""
    if HAS_IDS:
        matrix = tl.load(matrix_ids + block).to(tl.int64)
    else:
        matrix = tl.full((), 0, tl.int64)
    return matrix


@triton.jit
def x_row_of(token, num_tokens, x_share):
    """The vector of a token. Behind the last token it is the last one's: what comes of it is not stored."""
    return tl.minimum(token, num_tokens - 1).to(tl.int64) // x_share


@triton.jit
def product_kernel(
    codes, coarse, coarse_min, fine, fine_min, levels, matrix_ids, x, factors, bias, out,
    codes_stride, coarse_stride, fine_stride, factor_stride, bias_stride, num_matrices,
    num_rows, row_length, num_tokens, x_share,
    BITS: tl.constexpr, GROUP: tl.constexpr, VALUES_PER_COARSE: tl.constexpr, ZERO: tl.constexpr,
    HAS_LEVELS: tl.constexpr, HAS_FINE: tl.constexpr, HAS_MIN: tl.constexpr, HAS_IDS: tl.constexpr,
    HAS_FACTORS: tl.constexpr, HAS_BIAS: tl.constexpr, TOKENS: tl.constexpr,
    BLOCK_ROWS: tl.constexpr, BLOCK_RUNS: tl.constexpr,
):  # fmt: skip
    """out[t, r] = factor * sum over i of w[m, r, i] x[t // x_share, i] + bias[m, r].

    Grid: (blocks of rows, blocks of TOKENS vectors). m is matrix_ids[block], or 0. factors (matrices,). A stride
    leads from one matrix to the next.
    """
    block = tl.program_id(1)
    matrix = matrix_of(matrix_ids, block, HAS_IDS)
    row = tl.program_id(0) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    row_mask = row < num_rows
    token = block * TOKENS + tl.arange(0, TOKENS)
    out_mask = (token < num_tokens)[:, None] & row_mask[None, :]
    out_at = out + token[:, None].to(tl.int64) * num_rows + row[None, :]
    if (matrix < 0) | (matrix >= num_matrices):
        tl.store(out_at, tl.zeros((TOKENS, BLOCK_ROWS), tl.float32), out_mask)
        return
    codes += matrix * codes_stride
    coarse += matrix * coarse_stride
    if HAS_FINE:
        fine += matrix * fine_stride
    if HAS_MIN:
        coarse_min += matrix * coarse_stride
        if HAS_FINE:
            fine_min += matrix * fine_stride
    rows = row[:, None].to(tl.int64)
    sums = tl.zeros((TOKENS, BLOCK_ROWS), tl.float32)
    groups_per_row, coarse_per_row = row_length // GROUP, row_length // VALUES_PER_COARSE
    RUN_VALUES: tl.constexpr = 32 if BITS == 4 else GROUP
    RUN_BYTES: tl.constexpr = 16 if BITS == 4 else GROUP
    HALVES: tl.constexpr = 2 if BITS == 4 else 1
    RUN_GROUPS: tl.constexpr = RUN_VALUES // GROUP
    num_runs = row_length // RUN_VALUES
    inner = tl.arange(0, RUN_BYTES)
    for start in range(0, num_runs, BLOCK_RUNS):
        run = start + tl.arange(0, BLOCK_RUNS)
        run_mask = run < num_runs
        mask = row_mask[:, None] & run_mask[None, :]
        at = (rows * (num_runs * RUN_BYTES) + run[None, :] * RUN_BYTES)[:, :, None] + inner[None, None, :]
        packed = tl.load(codes + at, mask[:, :, None], 0)
        for half in tl.static_range(HALVES):
            if BITS == 4:
                value = levels_of((packed >> 4 * half) & 15, levels, ZERO, HAS_LEVELS)
            else:
                value = packed.to(tl.float32)
            group = run[None, :] * RUN_GROUPS + half * (RUN_GROUPS - 1)
            scale = scales_of(coarse, fine, rows, group, coarse_per_row, groups_per_row, mask, GROUP,
                              VALUES_PER_COARSE, HAS_FINE)  # fmt: skip
            if HAS_MIN:
                least = scales_of(coarse_min, fine_min, rows, group, coarse_per_row, groups_per_row, mask, GROUP,
                                  VALUES_PER_COARSE, HAS_FINE)  # fmt: skip
            for t in range(TOKENS):
                x_row = x_row_of(block * TOKENS + t, num_tokens, x_share) * row_length
                x_at = x_row + run[:, None] * RUN_VALUES + half * 16 + inner[None, :]
                x_values = tl.load(x + x_at, run_mask[:, None], 0.0)
                part = tl.sum(tl.sum(value * x_values[None, :, :], axis=2) * scale, axis=1)
                if HAS_MIN:
                    part -= tl.sum(least * tl.sum(x_values, axis=1)[None, :], axis=1)
                sums += tl.where((tl.arange(0, TOKENS) == t)[:, None], part[None, :], 0.0)
    if HAS_FACTORS:
        sums = sums * tl.load(factors + matrix * factor_stride)
    if HAS_BIAS:
        sums += tl.load(bias + matrix * bias_stride + row, row_mask, 0.0)[None, :]
    tl.store(out_at, sums, out_mask)


@triton.jit
def unpack_kernel(
    codes, coarse, coarse_min, fine, fine_min, levels, row_ids, out, num_rows, row_length,
    BITS: tl.constexpr, GROUP: tl.constexpr, VALUES_PER_COARSE: tl.constexpr, ZERO: tl.constexpr,
    HAS_LEVELS: tl.constexpr, HAS_FINE: tl.constexpr, HAS_MIN: tl.constexpr, BLOCK_RUNS: tl.constexpr,
):  # fmt: skip
    """out[i] = the row row_ids[i] of one matrix in the type of out. Grid: (rows of out, blocks of runs).

    The products of scales and codes are exact in float32, and the difference is rounded once, as on the CPU.
    """
    place = tl.program_id(0).to(tl.int64)
    row = tl.load(row_ids + place).to(tl.int64)
    row = tl.minimum(tl.maximum(row, 0), num_rows - 1)
    RUN_VALUES: tl.constexpr = 32 if BITS == 4 else GROUP
    RUN_BYTES: tl.constexpr = 16 if BITS == 4 else GROUP
    HALVES: tl.constexpr = 2 if BITS == 4 else 1
    RUN_GROUPS: tl.constexpr = RUN_VALUES // GROUP
    num_runs = row_length // RUN_VALUES
    run = (tl.program_id(1) * BLOCK_RUNS + tl.arange(0, BLOCK_RUNS))[:, None]
    mask = run < num_runs
    inner = tl.arange(0, RUN_BYTES)[None, :]
    packed = tl.load(codes + row * (num_runs * RUN_BYTES) + run * RUN_BYTES + inner, mask, 0)
    for half in tl.static_range(HALVES):
        if BITS == 4:
            value = levels_of((packed >> 4 * half) & 15, levels, ZERO, HAS_LEVELS)
        else:
            value = packed.to(tl.float32)
        group = run * RUN_GROUPS + half * (RUN_GROUPS - 1)
        value = value * scales_of(coarse, fine, row, group, row_length // VALUES_PER_COARSE, row_length // GROUP,
                                  mask, GROUP, VALUES_PER_COARSE, HAS_FINE)  # fmt: skip
        if HAS_MIN:
            value -= scales_of(coarse_min, fine_min, row, group, row_length // VALUES_PER_COARSE,
                               row_length // GROUP, mask, GROUP, VALUES_PER_COARSE, HAS_FINE)  # fmt: skip
        at = place * row_length + run * RUN_VALUES + half * 16 + inner
        tl.store(out + at, value.to(out.dtype.element_ty), mask)


@triton.jit
def plain_product_kernel(
    values, matrix_ids, x, factors, bias, out, stride, factor_stride, bias_stride, num_matrices,
    num_rows, row_length, num_tokens, x_share,
    HAS_IDS: tl.constexpr, HAS_FACTORS: tl.constexpr, HAS_BIAS: tl.constexpr, TOKENS: tl.constexpr,
    BLOCK_ROWS: tl.constexpr, BLOCK_VALUES: tl.constexpr,
):  # fmt: skip
    """`product_kernel` over plain floats."""
    block = tl.program_id(1)
    matrix = matrix_of(matrix_ids, block, HAS_IDS)
    row = tl.program_id(0) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    row_mask = row < num_rows
    token = block * TOKENS + tl.arange(0, TOKENS)
    out_mask = (token < num_tokens)[:, None] & row_mask[None, :]
    out_at = out + token[:, None].to(tl.int64) * num_rows + row[None, :]
    if (matrix < 0) | (matrix >= num_matrices):
        tl.store(out_at, tl.zeros((TOKENS, BLOCK_ROWS), tl.float32), out_mask)
        return
    rows = matrix * stride + row[:, None].to(tl.int64) * row_length
    sums = tl.zeros((TOKENS, BLOCK_ROWS), tl.float32)
    for start in range(0, row_length, BLOCK_VALUES):
        place = start + tl.arange(0, BLOCK_VALUES)
        mask = place < row_length
        weight = tl.load(values + rows + place[None, :], row_mask[:, None] & mask[None, :], 0.0).to(tl.float32)
        for t in range(TOKENS):
            x_row = x_row_of(block * TOKENS + t, num_tokens, x_share) * row_length
            x_values = tl.load(x + x_row + place, mask, 0.0)
            part = tl.sum(weight * x_values[None, :], axis=1)
            sums += tl.where((tl.arange(0, TOKENS) == t)[:, None], part[None, :], 0.0)
    if HAS_FACTORS:
        sums = sums * tl.load(factors + matrix * factor_stride)
    if HAS_BIAS:
        sums += tl.load(bias + matrix * bias_stride + row, row_mask, 0.0)[None, :]
    tl.store(out_at, sums, out_mask)
