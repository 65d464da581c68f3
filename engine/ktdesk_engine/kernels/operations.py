"""The operations of a layer on arrays, but for attention and the choice of experts."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

import numpy as np

from ktdesk_engine.kernels import _kernels
from ktdesk_engine.kernels.arrays import Doubles, Floats, Ids, new_floats
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
    out = new_floats(pool, x.shape[0], weight.num_rows)
    _kernels.linear(pool, int(weight.type), weight.blocks, weight.packed, x, out, bias)
    return out


def linear_per_head(pool: WorkerPool, weight: Weight, x: Floats) -> Floats:
    """x (T, heads, row_length) times the rows, or panels, that weight (heads, rows, row_bytes) has for each head.

    -> (T, heads, rows). x may be a slice of longer heads.
    """
    out = new_floats(pool, x.shape[0], x.shape[1], weight.num_rows)
    _kernels.linear_per_head(pool, int(weight.type), weight.blocks, weight.packed, x, out)
    return out


def get_rows(pool: WorkerPool, weight: Weight, ids: Ids) -> Floats:
    """The rows `ids` (T,) of weight -> (T, row_length)."""
    out = new_floats(pool, ids.shape[0], weight.row_length)
    _kernels.get_rows(pool, int(weight.type), weight.blocks, ids, out)
    return out


def expert_mlp(pool: WorkerPool, mlp: ExpertMlp, x: Floats, ids: Ids, weights: Floats) -> Floats:
    """Weighted sum over the experts ids (T, K) with weights (T, K) of x (T, H) -> (T, H)."""
    out = new_floats(pool, *x.shape)
    activation = (int(mlp.activation), mlp.limit)
    parts = (mlp.gate.as_tuple, mlp.up.as_tuple, mlp.down.as_tuple)
    _kernels.expert_mlp(pool, *parts, activation, mlp.weighs_inputs, ids, weights, x, out)
    return out


def only_expert_mlp(pool: WorkerPool, mlp: ExpertMlp, x: Floats) -> Floats:
    """x (T, H) through the first expert, with the weight 1 -> (T, H)."""
    out = new_floats(pool, *x.shape)
    activation = (int(mlp.activation), mlp.limit)
    _kernels.only_expert_mlp(pool, mlp.gate.as_tuple, mlp.up.as_tuple, mlp.down.as_tuple, activation, x, out)
    return out


def rms_norm(pool: WorkerPool, x: Floats, weight: Floats, epsilon: float) -> Floats:
    """x / sqrt(mean(x²) + epsilon) * weight over the last axis, which is as long as weight."""
    rows = x.reshape(-1, x.shape[-1])
    out = new_floats(pool, *rows.shape)
    _kernels.rms_norm(pool, rows, weight, epsilon, out)
    return out.reshape(x.shape)


def rms_norm_in_place(pool: WorkerPool, x: Floats, weight: Floats, epsilon: float) -> None:
    """x (T, length) becomes what `rms_norm` gives; it may be some columns of a wider array."""
    _kernels.rms_norm(pool, x, weight, epsilon, x)


def add(pool: WorkerPool, x: Floats, y: Floats) -> Floats:
    """x + y, (T, H) each."""
    out = new_floats(pool, *x.shape)
    _kernels.add(pool, x, y, out)
    return out


def gate(pool: WorkerPool, x: Floats, gates: Floats) -> Floats:
    """x (T, H) times the sigmoids of gates (T, 1)."""
    out = new_floats(pool, *x.shape)
    _kernels.gate(pool, x, gates, out)
    return out


def join_heads(pool: WorkerPool, first: Floats, second: Floats) -> Floats:
    """(T, heads, A) and (T, heads, B) -> (T, heads, A + B). Each may be a slice of longer heads."""
    out = new_floats(pool, *first.shape[:2], first.shape[2] + second.shape[2])
    _kernels.join_heads(pool, first, second, out)
    return out


def rope(pool: WorkerPool, x: Floats, cosines: Floats, sines: Floats, pairing: RopePairing) -> None:
    """Turns, in place, the first 2P elements of each head of x (T, heads, D) by cosines and sines (T, P)."""
    _kernels.rope(pool, x, cosines, sines, int(pairing))


class Turns(NamedTuple):
    """Cosines and sines of a batch's positions, each (T, pairs)."""

    cosines: Floats
    sines: Floats


def turns(pool: WorkerPool, positions: Ids, frequencies: Doubles, magnitude: float) -> Turns:
    """Of positions (T,) times frequencies (pairs,), times the magnitude."""
    shape = len(positions), len(frequencies)
    found = Turns(new_floats(pool, *shape), new_floats(pool, *shape))
    _kernels.turns(pool, positions, frequencies, magnitude, *found)
    return found


def dequantize(pool: WorkerPool, weight: Weight) -> Floats:
    """(rows, row_bytes) -> (rows, row_length)."""
    out = np.empty((weight.num_rows, weight.row_length), np.float32)
    _kernels.dequantize(pool, int(weight.type), weight.blocks, out)
    return out
