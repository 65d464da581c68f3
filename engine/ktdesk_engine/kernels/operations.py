"""The operations of a layer on arrays, but for attention and the choice of experts."""

from __future__ import annotations

from enum import IntEnum

import numpy as np

from ktdesk_engine.kernels import _kernels
from ktdesk_engine.kernels.arrays import Floats, Ids
from ktdesk_engine.kernels.pools import WorkerPool
from ktdesk_engine.kernels.weights import ExpertMlp, Weight


class RopePairing(IntEnum):
    """Which elements of a head turn together."""

    NEIGHBOURS = 0
    """2i with 2i + 1: "normal"."""
    HALVES = 1
    """i with i + half of the turned elements: "neox"."""


def linear(pool: WorkerPool, weight: Weight, x: Floats, bias: Floats | None = None) -> Floats:
    """x (T, row_length) times the rows of weight, plus bias (rows,) -> (T, rows)."""
    out = np.empty((x.shape[0], weight.num_rows), np.float32)
    _kernels.linear(pool, int(weight.type), weight.blocks, weight.packed, x, out, bias)
    return out


def linear_per_head(pool: WorkerPool, weight: Weight, x: Floats) -> Floats:
    """x (T, heads, row_length) times the rows that weight (heads, rows, row_bytes) has for each head.

    -> (T, heads, rows). x may be a slice of longer heads.
    """
    out = np.empty((x.shape[0], x.shape[1], weight.num_rows), np.float32)
    _kernels.linear_per_head(pool, int(weight.type), weight.blocks, x, out)
    return out


def get_rows(pool: WorkerPool, weight: Weight, ids: Ids) -> Floats:
    """The rows `ids` (T,) of weight -> (T, row_length)."""
    out = np.empty((ids.shape[0], weight.row_length), np.float32)
    _kernels.get_rows(pool, int(weight.type), weight.blocks, ids, out)
    return out


def expert_mlp(pool: WorkerPool, mlp: ExpertMlp, x: Floats, ids: Ids, weights: Floats) -> Floats:
    """Weighted sum over the experts ids (T, K) with weights (T, K) of x (T, H) -> (T, H)."""
    out = np.empty_like(x)
    activation = (int(mlp.activation), mlp.limit)
    parts = (mlp.gate.as_tuple, mlp.up.as_tuple, mlp.down.as_tuple)
    _kernels.expert_mlp(pool, *parts, activation, mlp.weighs_inputs, ids, weights, x, out)
    return out


def rms_norm(pool: WorkerPool, x: Floats, weight: Floats, epsilon: float) -> Floats:
    """x / sqrt(mean(x²) + epsilon) * weight over the last axis, which is as long as weight."""
    rows = x.reshape(-1, x.shape[-1])
    out = np.empty_like(rows)
    _kernels.rms_norm(pool, rows, weight, epsilon, out)
    return out.reshape(x.shape)


def rope(pool: WorkerPool, x: Floats, cosines: Floats, sines: Floats, pairing: RopePairing) -> None:
    """Turns, in place, the first 2P elements of each head of x (T, heads, D) by cosines and sines (T, P)."""
    _kernels.rope(pool, x, cosines, sines, int(pairing))


def dequantize(pool: WorkerPool, weight: Weight) -> Floats:
    """(rows, row_bytes) -> (rows, row_length)."""
    out = np.empty((weight.num_rows, weight.row_length), np.float32)
    _kernels.dequantize(pool, int(weight.type), weight.blocks, out)
    return out
