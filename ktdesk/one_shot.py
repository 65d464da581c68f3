"""`ktdesk run`: one prompt, one answer."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ktdesk.answering import Answer, fold, open_stream, print_answer
from ktdesk.asking import Asked, AskedModel
from ktdesk.errors import UsageError
from ktdesk.options import AnswerOptions, SamplingOptions
from ktdesk.text_input import piped_text
from ktdesk_engine.sampler import TokenLogprobs

FROM_STDIN = "-"


@dataclass(frozen=True)
class Prompt:
    text: str
    raw: bool = False
    """Without the chat template."""
    num_logprobs: int | None = None


def read_prompt(argument: str | None) -> str:
    """The argument, then what is piped in; the last line break of that is not part of it."""
    parts = [] if argument in (None, FROM_STDIN) else [argument]
    if argument == FROM_STDIN or not sys.stdin.isatty():
        piped = piped_text().removesuffix("\n")
        parts += [piped] if piped else []
    text = "\n\n".join(part for part in parts if part)
    if not text:
        raise UsageError("there is no prompt: give one after MODEL, or pipe one in")
    return text


def answer_once(model: AskedModel, prompt: Prompt, answer: AnswerOptions, sampling: SamplingOptions) -> None:
    """Streams the answer to standard output."""
    print_answer(model, _asked(prompt, answer, sampling))


def answer_facts(model: AskedModel, prompt: Prompt, answer: AnswerOptions, sampling: SamplingOptions) -> dict[str, Any]:
    """What `--json` tells, once the answer is whole."""
    asked = _asked(prompt, answer, sampling)
    with open_stream(model, asked) as events:
        return _facts(model, asked, fold(events))


def _asked(prompt: Prompt, answer: AnswerOptions, sampling: SamplingOptions) -> Asked:
    messages = [*answer.first_messages, {"role": "user", "content": prompt.text}]
    return Asked(prompt.text if prompt.raw else messages, answer, sampling, prompt.num_logprobs)


def _facts(model: AskedModel, asked: Asked, answer: Answer) -> dict[str, Any]:
    timings = answer.timings
    sampling = asked.sampling.over(model.recommended_sampling)
    facts: dict[str, Any] = {
        "text": answer.text,
        "finish_reason": answer.finish_reason,
        "token_ids": list(answer.token_ids),
        "num_prompt_tokens": timings.num_prompt_tokens,
        "num_cached_tokens": timings.num_cached_tokens,
        "num_answer_tokens": timings.num_answer_tokens,
        "prefill_seconds": timings.prefill_seconds,
        "decode_seconds": timings.decode_seconds,
        "prefill_tok_s": timings.prefill_tok_s,
        "decode_tok_s": timings.decode_tok_s,
        "seed": timings.seed,
        "sampling": {**asdict(sampling), "seed": timings.seed},
        "engine": model.config_facts,
    }
    if asked.num_logprobs is not None:
        facts["logprobs"] = _logprob_facts(model, answer.logprobs)
    return facts


def _logprob_facts(model: AskedModel, entries: Sequence[TokenLogprobs]) -> list[dict[str, Any]]:
    ids = sorted({token_id for entry in entries for token_id in (entry.token_id, *(pair[0] for pair in entry.top))})
    texts = dict(zip(ids, model.token_texts(ids), strict=True))

    def fact(token_id: int, logprob: float) -> dict[str, Any]:
        """JSON has no infinity: a log-probability of zero probability is null."""
        return {"id": token_id, "token": texts[token_id], "logprob": logprob if math.isfinite(logprob) else None}

    return [{**fact(entry.token_id, entry.logprob), "top": [fact(*pair) for pair in entry.top]} for entry in entries]
