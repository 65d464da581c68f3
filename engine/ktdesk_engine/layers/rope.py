"""Rotary positions: by which angle each pair of a head turns at each position."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ktdesk_engine.backends.backend import Backend
from ktdesk_engine.gguf.hparams import Metadata
from ktdesk_engine.kernels import Doubles, Floats, Ids, RopePairing, Turns
from ktdesk_engine.weights import Weights


@dataclass(frozen=True)
class Yarn:
    """YaRN: slow pairs are interpolated, fast ones kept, with a ramp between."""

    factor: float
    original_context: int
    beta_fast: float = 32.0
    beta_slow: float = 1.0

    def ramp(self, num_pairs: int, base: float) -> np.ndarray:
        """(num_pairs,): 1 keeps a pair's frequency, 0 divides it by the factor."""

        def pair_that_turns(rotations: float) -> float:
            wavelength = self.original_context / (rotations * 2 * math.pi)
            return num_pairs * math.log(wavelength) / math.log(base)

        low = max(0, math.floor(pair_that_turns(self.beta_fast)))
        high = min(2 * num_pairs - 1, math.ceil(pair_that_turns(self.beta_slow)))
        return 1 - np.clip((np.arange(num_pairs) - low) / max(0.001, high - low), 0, 1)

    def magnitude(self, multiplier: float = 1.0) -> float:
        """m(a) = 1 + 0.1 a ln(factor)."""
        return 1 + 0.1 * multiplier * math.log(self.factor) if self.factor > 1 else 1.0


@dataclass(frozen=True)
class Rope:
    """The rotary positions of one model."""

    pairing: RopePairing
    num_dims: int
    """Elements of a head that turn; even."""
    base: float
    scale: float = 1.0
    """Linear scaling: the position is divided by it."""
    yarn: Yarn | None = None
    divisors: Floats | None = None
    """(num_pairs,): `rope_freqs`, what each frequency is divided by."""
    magnitude: float = 1.0
    """Cosines and sines are multiplied with it."""

    @cached_property
    def frequencies(self) -> Doubles:
        """(num_pairs,) in radians per position."""
        num_pairs = self.num_dims // 2
        frequencies: Doubles = self.base ** (-np.arange(num_pairs) / num_pairs) / self.scale
        if self.divisors is not None:
            frequencies /= self.divisors
        if self.yarn is not None:
            keep = self.yarn.ramp(num_pairs, self.base)
            frequencies *= keep + (1 - keep) / self.yarn.factor
        return frequencies

    def turns(self, backend: Backend, positions: Ids) -> Turns:
        """(T,) -> 2 x (T, num_pairs)."""
        return backend.turns(positions, self.frequencies, self.magnitude)


def rope_from_metadata(hparams: Metadata, pairing: RopePairing, head_size: int, weights: Weights) -> Rope:
    """The rotary positions that the keys `rope.*` and the tensor `rope_freqs` describe.

    head_size: how many elements turn where no key says it.
    """
    num_dims = hparams.integer("rope.dimension_count", head_size, minimum=2, maximum=head_size)
    if num_dims % 2:
        raise hparams.unsupported("rope.dimension_count", "even numbers")
    kind = hparams.string("rope.scaling.type", "linear")
    if kind not in ("none", "linear", "yarn"):
        raise hparams.unsupported("rope.scaling.type", "none, linear and yarn")
    factor = _scaling_factor(hparams)
    yarn = _yarn(hparams, factor) if kind == "yarn" and factor > 1 else None
    return Rope(
        pairing=pairing,
        num_dims=num_dims,
        base=hparams.number("rope.freq_base", 10000.0, minimum=1.001),
        scale=factor if kind == "linear" else 1.0,
        yarn=yarn,
        divisors=_divisors(weights, num_dims // 2),
        magnitude=_magnitude(hparams, yarn),
    )


def _divisors(weights: Weights, num_pairs: int) -> Floats | None:
    """Llama 3.1 and later: each frequency is divided by its own number."""
    return weights.vector("rope_freqs.weight", num_pairs) if weights.has("rope_freqs.weight") else None


def _scaling_factor(hparams: Metadata) -> float:
    """1 where the file has none; 0 means the same. `rope.scale_linear` is the old name."""
    key = "rope.scaling.factor" if hparams.has("rope.scaling.factor") else "rope.scale_linear"
    factor = hparams.number(key, 1.0, minimum=0.0, maximum=1e6) or 1.0
    if factor < 1:
        raise hparams.unsupported(key, "factors of at least 1")
    return factor


def _yarn(hparams: Metadata, factor: float) -> Yarn:
    for key in ("rope.scaling.yarn_ext_factor", "rope.scaling.yarn_attn_factor"):
        if hparams.number(key, 1.0) != 1.0:
            raise hparams.unsupported(key, "1")
    return Yarn(
        factor=factor,
        original_context=hparams.integer("rope.scaling.original_context_length", minimum=1),
        beta_fast=hparams.number("rope.scaling.yarn_beta_fast", 32.0, minimum=1e-3, maximum=1e6),
        beta_slow=hparams.number("rope.scaling.yarn_beta_slow", 1.0, minimum=1e-3, maximum=1e6),
    )


def _magnitude(hparams: Metadata, yarn: Yarn | None) -> float:
    """What cosines and sines are multiplied with: m(1), or m(1) / m(L) with a log multiplier L."""
    magnitude = hparams.number("rope.scaling.attn_factor", 1.0, minimum=1e-3, maximum=1e3)
    if yarn is None:
        return magnitude
    log_multiplier = hparams.number("rope.scaling.yarn_log_multiplier", 0.0, minimum=0.0, maximum=1e3)
    return magnitude * yarn.magnitude() / (yarn.magnitude(log_multiplier) if log_multiplier else 1.0)
