"""From logits to the next token. Every step can be followed in `Sampler.probabilities`."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ktdesk_engine.config import SamplingConfig
from ktdesk_engine.errors import RequestError
from ktdesk_engine.kernels import Floats


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


class Sampler:
    """Draws the tokens of one answer."""

    def __init__(self, config: SamplingConfig) -> None:
        self.config = replace(config, seed=secrets.randbits(63) if config.seed is None else config.seed)
        self._random = np.random.default_rng(self.config.seed)

    def choose(self, logits: Floats, past: Sequence[int]) -> int:
        """The next token id. logits (V,); past: prompt and answer so far, for the penalties."""
        adjusted = self._adjusted(logits, past)
        if self.config.temperature == 0:
            return int(np.argmax(adjusted))
        ids, shares = self._candidates(adjusted)
        return int(self._random.choice(ids, p=shares))

    def probabilities(self, logits: Floats, past: Sequence[int]) -> np.ndarray:
        """What `choose` draws from, (V,) in float64; sums to one."""
        adjusted = self._adjusted(logits, past)
        probabilities = np.zeros(len(logits))
        if self.config.temperature == 0:
            probabilities[int(np.argmax(adjusted))] = 1.0
        else:
            ids, shares = self._candidates(adjusted)
            probabilities[ids] = shares
        return probabilities

    def _adjusted(self, logits: Floats, past: Sequence[int]) -> np.ndarray:
        """Penalties and bias, in float64."""
        c = self.config
        adjusted = logits.astype(np.float64)
        window = past if c.penalty_window < 0 else past[len(past) - min(c.penalty_window, len(past)) :]
        if len(window) and (c.repetition_penalty != 1 or c.presence_penalty or c.frequency_penalty):
            ids, counts = np.unique(np.asarray(window), return_counts=True)
            seen = adjusted[ids]
            seen = np.where(seen > 0, seen / c.repetition_penalty, seen * c.repetition_penalty)
            adjusted[ids] = seen - c.presence_penalty - c.frequency_penalty * counts
        for token_id, bias in c.logit_bias:
            adjusted[token_id] += bias
        if adjusted.max() == -np.inf:
            raise RequestError("logit_bias bans every token: leave one to choose")
        return adjusted

    def _candidates(self, adjusted: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Token ids, likeliest first, and their shares, after temperature, top-k, top-p and min-p."""
        c = self.config
        count = min(c.top_k or len(adjusted), len(adjusted))
        ids = np.argpartition(-adjusted, count - 1)[:count] if count < len(adjusted) else np.arange(count)
        ids = ids[np.lexsort((ids, -adjusted[ids]))]
        # The largest becomes 0 before it is divided, so that with a tiny temperature the others alone overflow.
        with np.errstate(over="ignore"):
            scaled = (adjusted[ids] - adjusted[ids[0]]) / c.temperature
        shares = np.exp(scaled)
        shares /= shares.sum()
        # top-p keeps the token that reaches the sum, so at least one.
        keep = np.cumsum(shares) - shares < c.top_p
        keep &= shares >= c.min_p * shares[0]
        ids, shares = ids[keep], shares[keep]
        return ids, shares / shares.sum()


def token_logprobs(logits: Floats, token_id: int, num_top: int) -> TokenLogprobs:
    """logits (V,)."""
    logprobs = log_softmax(logits)
    top = np.argsort(-logprobs, kind="stable")[:num_top]
    return TokenLogprobs(token_id, float(logprobs[token_id]), tuple((int(i), float(logprobs[i])) for i in top))
