"""From logits to the next token. Every step can be followed in `Sampler.probabilities`."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from ktdesk_engine.config import SamplingConfig
from ktdesk_engine.errors import RequestError
from ktdesk_engine.kernels import Doubles, Floats
from ktdesk_engine.kernels.sampling import top_k


@dataclass(frozen=True)
class TokenLogprobs:
    """Log-probabilities of the model itself: before penalties, bias and temperature."""

    token_id: int
    logprob: float
    top: tuple[tuple[int, float], ...]
    """(token id, log-probability) of the likeliest, likeliest first."""


def log_softmax(logits: Floats) -> Floats:
    """Over the last axis, in float32."""
    shifted: Floats = logits - logits.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))


class Candidates(NamedTuple):
    """What is drawn from."""

    ids: np.ndarray
    """Token ids, likeliest first."""
    shares: Doubles
    """They sum to one."""


class Sampler:
    """Draws the tokens of one answer."""

    def __init__(self, config: SamplingConfig) -> None:
        self.config = replace(config, seed=secrets.randbits(63) if config.seed is None else config.seed)
        self._random = np.random.default_rng(self.config.seed)

    def choose(self, logits: Floats, past: Sequence[int]) -> int:
        """The next token id. logits (V,); past: prompt and answer so far, for the penalties."""
        ids, shares = self._candidates(logits, past)
        if self.config.temperature == 0:
            return int(ids[0])
        sums = shares.cumsum()  # what random.choice does, without its checks
        sums /= sums[-1]
        return int(ids[sums.searchsorted(self._random.random(), side="right")])

    def probabilities(self, logits: Floats, past: Sequence[int]) -> np.ndarray:
        """What `choose` draws from, (V,) in float64; sums to one."""
        probabilities = np.zeros(len(logits))
        candidates = self._candidates(logits, past)
        probabilities[candidates.ids] = candidates.shares
        return probabilities

    def _candidates(self, logits: Floats, past: Sequence[int]) -> Candidates:
        """After penalties, bias, temperature, top-k, top-p and min-p."""
        c = self.config
        greedy = c.temperature == 0
        ids, values = _likeliest(logits, self._changed(logits, past), 1 if greedy else c.top_k or len(logits))
        if values[0] == -np.inf:
            raise RequestError("logit_bias bans every token: leave one to choose")
        if greedy:
            return Candidates(ids, np.ones(1))
        # The largest becomes 0 before it is divided, so that with a tiny temperature the others alone overflow.
        with np.errstate(over="ignore"):
            scaled = (values - values[0]) / c.temperature
        shares = np.exp(scaled)
        shares /= shares.sum()
        # top-p keeps the token that reaches the sum, so at least one.
        keep = np.cumsum(shares) - shares < c.top_p
        keep &= shares >= c.min_p * shares[0]
        ids, shares = ids[keep], shares[keep]
        return Candidates(ids, shares / shares.sum())

    def _changed(self, logits: Floats, past: Sequence[int]) -> dict[int, float]:
        """The logits that penalties and bias change, and what they become."""
        c = self.config
        changed: dict[int, float] = {}
        window = past if c.penalty_window < 0 else past[len(past) - min(c.penalty_window, len(past)) :]
        if len(window) and (c.repetition_penalty != 1 or c.presence_penalty or c.frequency_penalty):
            ids, counts = np.unique(np.asarray(window), return_counts=True)
            seen = logits[ids].astype(np.float64)
            seen = np.where(seen > 0, seen / c.repetition_penalty, seen * c.repetition_penalty)
            seen -= c.presence_penalty + c.frequency_penalty * counts
            changed = dict(zip(ids.tolist(), seen.tolist(), strict=True))
        for token_id, bias in c.logit_bias:
            changed[token_id] = changed.get(token_id, float(logits[token_id])) + bias
        return changed


def _likeliest(logits: Floats, changed: Mapping[int, float], count: int) -> tuple[np.ndarray, Doubles]:
    """Ids and values of the `count` largest, largest first, the lower id first among equals."""
    count = min(count, len(logits))
    # Those that are not changed and among the largest in the end are among so many now.
    ids = top_k(logits, min(count + len(changed), len(logits)))
    values = logits[ids].astype(np.float64)
    if not changed:
        return ids, values
    changed_ids = np.fromiter(changed, np.int32, len(changed))
    same = ~np.isin(ids, changed_ids)
    ids = np.concatenate([ids[same], changed_ids])
    values = np.concatenate([values[same], np.fromiter(changed.values(), np.float64, len(changed))])
    order = np.lexsort((ids, -values))[:count]
    return ids[order], values[order]


def token_logprobs(logits: Floats, token_id: int, num_top: int) -> TokenLogprobs:
    """logits (V,)."""
    logprobs = log_softmax(logits)
    top = np.argsort(-logprobs, kind="stable")[:num_top]
    return TokenLogprobs(token_id, float(logprobs[token_id]), tuple((int(i), float(logprobs[i])) for i in top))
