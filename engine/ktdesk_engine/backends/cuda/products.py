"""Products of vectors with the matrices on a device, and single rows of them."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import triton

from ktdesk_engine.backends.cuda.device_weights import DeviceMatrices, GroupScaled, Plain
from ktdesk_engine.backends.cuda.quantized_kernels import plain_product_kernel, product_kernel, unpack_kernel

MAX_TOKENS = 16
"""Vectors that share one reading of a matrix; more are multiplied with the unpacked matrix."""


class _Blocks(NamedTuple):
    """What a program takes at once."""

    rows: int
    runs: int
    """Of codes"""
    values: int
    """Of plain floats"""


_ON_GPU = _Blocks(rows=4, runs=32, values=256)
_INTERPRETED = _Blocks(rows=256, runs=64, values=2048)
"""Triton's interpreter takes milliseconds for a program, of any size."""


def _blocks(device: torch.device) -> _Blocks:
    return _ON_GPU if device.type == "cuda" else _INTERPRETED


def multiply(
    matrices: DeviceMatrices,
    x: torch.Tensor,
    bias: torch.Tensor | None = None,
    matrix_ids: torch.Tensor | None = None,
    factors: torch.Tensor | None = None,
    x_share: int = 1,
) -> torch.Tensor:
    """x (rows, row_length) float32 -> (T, rows) float32.

    Without ids all up to MAX_TOKENS rows of x meet the first matrix. With ids (T,) int32 row t meets the matrix
    ids[t], and is row t // x_share of x; where the id names none, the result is zero. bias (matrices, rows),
    factors (matrices,): of each matrix, on its products.
    """
    x = x.contiguous()
    shape, blocks = matrices.shape, _blocks(x.device)
    num_tokens = len(x) if matrix_ids is None else len(matrix_ids)
    tokens = triton.next_power_of_2(num_tokens) if matrix_ids is None else 1
    assert tokens <= MAX_TOKENS
    out = torch.empty(num_tokens, shape.num_rows, dtype=torch.float32, device=x.device)
    grid = (triton.cdiv(shape.num_rows, blocks.rows), triton.cdiv(num_tokens, tokens))
    strides = (_stride(factors), _stride(bias))
    sizes = (*strides, shape.num_matrices, shape.num_rows, shape.row_length, num_tokens, x_share)
    options = {
        "HAS_IDS": matrix_ids is not None,
        "HAS_FACTORS": factors is not None,
        "HAS_BIAS": bias is not None,
        "TOKENS": tokens,
        "BLOCK_ROWS": blocks.rows,
    }
    if isinstance(matrices, Plain):
        plain_product_kernel[grid](
            matrices.values, matrix_ids, x, factors, bias, out, matrices.values.stride(0), *sizes, **options,
            BLOCK_VALUES=blocks.values,
        )  # fmt: skip
    else:
        product_kernel[grid](
            *matrices.parts, matrices.levels, matrix_ids, x, factors, bias, out, *_strides(matrices), *sizes,
            **_form(matrices), **options, BLOCK_RUNS=blocks.runs,
        )  # fmt: skip
    return out


def unpacked(matrices: DeviceMatrices, matrix: int) -> torch.Tensor:
    """(rows, row_length) bfloat16, rounded to nearest."""
    if isinstance(matrices, Plain):
        return matrices.values[matrix].to(torch.bfloat16)
    rows = torch.arange(matrices.shape.num_rows, dtype=torch.int32, device=matrices.parts.codes.device)
    return _rows(matrices, matrix, rows, torch.bfloat16)


def rows_of(matrices: DeviceMatrices, ids: torch.Tensor) -> torch.Tensor:
    """The rows ids (T,) of the first matrix, (T, row_length) float32: exactly their values."""
    if isinstance(matrices, Plain):
        return matrices.values[0, ids.long()].float()
    return _rows(matrices, 0, ids, torch.float32)


def _rows(matrices: GroupScaled, matrix: int, ids: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    shape = matrices.shape
    out = torch.empty(len(ids), shape.row_length, dtype=dtype, device=ids.device)
    run_values = 32 if matrices.form.bits == 4 else matrices.form.group
    runs = _blocks(ids.device).runs
    grid = (len(ids), triton.cdiv(shape.row_length // run_values, runs))
    parts = (None if part is None else part[matrix] for part in matrices.parts)
    unpack_kernel[grid](
        *parts, matrices.levels, ids, out, shape.num_rows, shape.row_length, **_form(matrices), BLOCK_RUNS=runs
    )
    return out


def _stride(of_matrices: torch.Tensor | None) -> int:
    """From one matrix to the next."""
    return 0 if of_matrices is None else of_matrices.stride(0)


def _strides(matrices: GroupScaled) -> tuple[int, int, int]:
    """From one matrix to the next, of codes, coarse and fine."""
    codes, coarse, _, fine, _ = matrices.parts
    return codes.stride(0), coarse.stride(0), 0 if fine is None else fine.stride(0)


def _form(matrices: GroupScaled) -> dict[str, Any]:
    form, parts = matrices.form, matrices.parts
    return {
        "BITS": form.bits,
        "GROUP": form.group,
        "VALUES_PER_COARSE": matrices.shape.row_length // parts.coarse.shape[-1],
        "ZERO": form.zero,
        "HAS_LEVELS": matrices.levels is not None,
        "HAS_FINE": parts.fine is not None,
        "HAS_MIN": parts.coarse_min is not None,
    }


def bfloat16_product(x: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """x (T, row_length) times rows (rows, row_length), both rounded to bfloat16 -> (T, rows) float32."""
    return (x.to(torch.bfloat16) @ rows.T).float()
