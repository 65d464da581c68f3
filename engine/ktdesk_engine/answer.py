"""One answer while it is made: from the logits of each step to what the caller sees."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ktdesk_engine.config import Request
from ktdesk_engine.kernels import Floats
from ktdesk_engine.sampler import Sampler, TokenLogprobs, token_logprobs
from ktdesk_engine.stop_strings import Passed, StopStrings
from ktdesk_engine.tokenizer.tokenizer import Tokenizer

FinishReason = Literal["stop", "length"]


@dataclass(frozen=True)
class Timings:
    """What one answer took."""

    num_prompt_tokens: int
    num_answer_tokens: int
    prefill_seconds: float
    """Until the first token was chosen."""
    decode_seconds: float
    """From the first token to the last."""
    seed: int
    """With it, the same request gives the same answer."""
    step_seconds: float = 0.0
    """Of decode_seconds, what was not the caller's: the model, the choice of tokens and their text. 0: not measured."""
    busy_seconds: float = 0.0
    """Of step_seconds, what the model's operations took; the rest is Python's."""
    num_cached_tokens: int = 0
    """Of the prompt: those that were not computed, because another request did."""
    queued_seconds: float = 0.0
    """Before the prompt's turn came."""

    @property
    def prefill_tok_s(self) -> float:
        """Of the tokens that were computed."""
        return (self.num_prompt_tokens - self.num_cached_tokens) / self.prefill_seconds if self.prefill_seconds else 0.0

    @property
    def decode_tok_s(self) -> float:
        """Without the first token, which the prefill gives."""
        return (self.num_answer_tokens - 1) / self.decode_seconds if self.decode_seconds else 0.0

    @property
    def python_share(self) -> float:
        """Of the time of a decode step."""
        return 1 - self.busy_seconds / self.step_seconds if self.step_seconds else 0.0


@dataclass(frozen=True)
class StreamEvent:
    """One step of an answer. The texts of all events are the answer."""

    text: str
    """May be empty: half a character, or what may become a stop string, is held back."""
    token_ids: tuple[int, ...]
    """The token that was chosen; an end token is not among them."""
    logprobs: tuple[TokenLogprobs, ...] = ()
    """One for each token id, if asked for."""
    finish_reason: FinishReason | None = None
    """On the last event."""
    stop_string: str | None = None
    """On the last event, where one ended the answer."""
    timings: Timings | None = None
    """On the last event."""


class Answer:
    """Knows no model: is given logits, and says what they add."""

    def __init__(self, request: Request, tokenizer: Tokenizer, context: int) -> None:
        self._request = request
        self._sampler = Sampler(request.sampling)
        self._end_ids = frozenset() if request.ignore_eos else tokenizer.end_ids
        self._decoder = tokenizer.stream_decoder(at_start=not request.is_continuation, shown_ids=request.shown_ids)
        self._constraint = request.make_constraint() if request.make_constraint else None
        self._stops = StopStrings(request.stop)
        self.token_ids = list(request.token_ids)
        """Of the prompt, and of the answer so far."""
        room = context - len(self.token_ids)
        self._max_tokens = min(room, request.max_tokens or room)

    @property
    def num_answer_tokens(self) -> int:
        return len(self.token_ids) - len(self._request.token_ids)

    @property
    def num_tokens_left(self) -> int:
        """At most."""
        return self._max_tokens - self.num_answer_tokens

    def next_event(self, logits: Floats) -> StreamEvent:
        """Chooses a token and says what it adds. logits: (V,)."""
        token_id = self._choose(logits)
        if token_id in self._end_ids:
            rest = self._rest()
            return StreamEvent(rest.text, (), finish_reason="stop", stop_string=rest.stop)
        self.token_ids.append(token_id)
        passed = self._stops.push(self._decoder.push(token_id))
        logprobs = self._logprobs(logits, token_id)
        if passed.is_stopped:
            return StreamEvent(passed.text, (token_id,), logprobs, "stop", passed.stop)
        if self.num_answer_tokens >= self._max_tokens:
            rest = self._rest()
            reason: FinishReason = "stop" if rest.is_stopped else "length"
            return StreamEvent(passed.text + rest.text, (token_id,), logprobs, reason, rest.stop)
        return StreamEvent(passed.text, (token_id,), logprobs)

    def timings(
        self, prefill_seconds: float, decode_seconds: float, num_cached_tokens: int = 0, queued_seconds: float = 0.0
    ) -> Timings:
        """Of the whole answer, once it is done."""
        return Timings(
            num_prompt_tokens=len(self._request.token_ids),
            num_answer_tokens=self.num_answer_tokens,
            prefill_seconds=prefill_seconds,
            decode_seconds=decode_seconds,
            seed=self._sampler.config.seed or 0,
            num_cached_tokens=num_cached_tokens,
            queued_seconds=queued_seconds,
        )

    def _choose(self, logits: Floats) -> int:
        if self._constraint is None:
            return self._sampler.choose(logits, self.token_ids)
        token_id = self._sampler.choose(self._constraint.allowed(logits), self.token_ids)
        self._constraint.accept(token_id)
        return token_id

    def _rest(self) -> Passed:
        """What decoder and stop strings still hold. Half a character at the end may be what a stop string asks for."""
        passed = self._stops.push(self._decoder.flush())
        return passed if passed.is_stopped else Passed(passed.text + self._stops.flush())

    def _logprobs(self, logits: Floats, token_id: int) -> tuple[TokenLogprobs, ...]:
        num_top = self._request.num_logprobs
        return () if num_top is None else (token_logprobs(logits, token_id, num_top),)
