"""How far one way of computing a model is from another, at every position of a text.

Knows no engine, only functions that score tokens. Logarithms are natural: divergences are in nats.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ktdesk_engine.kernels import Floats

Doubles = npt.NDArray[np.float64]
Score = Callable[[Sequence[int]], Floats]
"""`Engine.score`: log-probabilities (T, V); row t is of the token after token_ids[: t + 1]."""

ROWS_AT_ONCE = 64
"""Rows of (T, V) that are held in float64 at a time."""


@dataclass(frozen=True)
class WindowResult:
    """One sequence, scored in both ways."""

    kl: Doubles
    """(T,): KL divergence of the tested distribution from the reference's, over the whole vocabulary."""
    num_agreeing: int
    """Positions where both have the same likeliest token."""
    num_predicted: int
    """Tokens that follow another one: T - 1."""
    reference_nll: float
    """Negative log-probability of the predicted tokens, summed."""
    tested_nll: float

    @property
    def num_positions(self) -> int:
        return len(self.kl)


@dataclass(frozen=True)
class Quality:
    """All windows together. An error is a standard error over windows; None where there is one window alone."""

    num_windows: int
    num_positions: int
    num_predicted: int
    reference_perplexity: float
    perplexity: float
    mean_kl: float
    mean_kl_error: float | None
    p99_kl: float
    max_kl: float
    top1: float
    """Share of the positions where both have the same likeliest token."""
    top1_error: float | None


def windows_of(token_ids: Sequence[int], size: int, bos_id: int | None) -> list[tuple[int, ...]]:
    """A text cut into sequences of `size` tokens, the last one shorter. Each begins with bos_id where there is one."""
    first = () if bos_id is None else (bos_id,)
    stride = size - len(first)
    return [(*first, *token_ids[start : start + stride]) for start in range(0, len(token_ids), stride)]


def evaluate(reference: Score, tested: Score, windows: Iterable[Sequence[int]]) -> Iterator[WindowResult]:
    """Scores window after window in both ways. One window's scores are held at a time."""
    for token_ids in windows:
        yield compare(reference(token_ids), tested(token_ids), token_ids)


def compare(reference: Floats, tested: Floats, token_ids: Sequence[int]) -> WindowResult:
    """reference, tested: log-probabilities (T, V) of what follows each of token_ids."""
    kl = [
        kl_divergence(reference[start : start + ROWS_AT_ONCE], tested[start : start + ROWS_AT_ONCE])
        for start in range(0, len(token_ids), ROWS_AT_ONCE)
    ]
    rows, targets = np.arange(len(token_ids) - 1), np.asarray(token_ids[1:], np.int64)
    return WindowResult(
        kl=np.concatenate(kl),
        num_agreeing=int(np.count_nonzero(reference.argmax(axis=-1) == tested.argmax(axis=-1))),
        num_predicted=len(targets),
        reference_nll=-float(reference[rows, targets].sum(dtype=np.float64)),
        tested_nll=-float(tested[rows, targets].sum(dtype=np.float64)),
    )


def kl_divergence(reference: Floats, tested: Floats) -> Doubles:
    """Sum over the vocabulary of p (log p - log q), p the reference's. (T, V) log-probabilities -> (T,)."""
    log_p, log_q = _normalized(reference), _normalized(tested)
    divergence: Doubles = (np.exp(log_p) * (log_p - log_q)).sum(axis=-1)
    return np.maximum(divergence, 0.0)  # rounding may leave -1e-17


def _normalized(log_probabilities: Floats) -> Doubles:
    """In float64, summing to one: the last bits of float32 would add a term as large as a small divergence."""
    wide = log_probabilities.astype(np.float64)
    return wide - np.log(np.exp(wide).sum(axis=-1, keepdims=True))


def fold(results: Sequence[WindowResult]) -> Quality:
    """Every position counts the same. At least one token must have been predicted."""
    kl = np.concatenate([result.kl for result in results])
    num_positions = np.array([result.num_positions for result in results])
    num_agreeing = np.array([result.num_agreeing for result in results])
    num_predicted = sum(result.num_predicted for result in results)
    return Quality(
        num_windows=len(results),
        num_positions=len(kl),
        num_predicted=num_predicted,
        reference_perplexity=_perplexity(sum(result.reference_nll for result in results) / num_predicted),
        perplexity=_perplexity(sum(result.tested_nll for result in results) / num_predicted),
        mean_kl=float(kl.mean()),
        mean_kl_error=standard_error(np.array([result.kl.sum() for result in results]), num_positions),
        p99_kl=float(np.percentile(kl, 99)),
        max_kl=float(kl.max()),
        top1=float(num_agreeing.sum() / len(kl)),
        top1_error=standard_error(num_agreeing, num_positions),
    )


def standard_error(sums: npt.NDArray[np.generic], counts: npt.NDArray[np.generic]) -> float | None:
    """Of sum(sums) / sum(counts): positions of a window are alike, so that windows are what is drawn, not positions.

    sums, counts: (W,). Of windows of one size it is the standard deviation of their means over the root of W.
    """
    num_windows = len(sums)
    if num_windows < 2:
        return None
    residuals = sums - sums.sum() / counts.sum() * counts
    return math.sqrt(num_windows / (num_windows - 1) * float((residuals**2).sum())) / float(counts.sum())


def _perplexity(mean_nll: float) -> float:
    try:
        return math.exp(mean_nll)
    except OverflowError:
        return math.inf
