"""`ktdesk run`: one prompt, one answer."""

from __future__ import annotations

import math
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ktdesk.answering import Answer, chat_request, fold, open_stream, print_answer, raw_request
from ktdesk.errors import UsageError
from ktdesk.json_output import json_text
from ktdesk.loading import loaded_engine
from ktdesk.options import AnswerOptions, EngineOptions, SamplingOptions
from ktdesk.text_input import piped_text
from ktdesk_engine.config import Request
from ktdesk_engine.engine import Engine
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


def answer_once(
    path: Path, prompt: Prompt, answer: AnswerOptions, sampling: SamplingOptions, engine: EngineOptions
) -> None:
    """Streams the answer to standard output."""
    with loaded_engine(path, engine) as loaded:
        print_answer(loaded, _request(loaded, prompt, answer, sampling))


def answer_as_json(
    path: Path, prompt: Prompt, answer: AnswerOptions, sampling: SamplingOptions, engine: EngineOptions
) -> None:
    """Prints one JSON object once the answer is whole."""
    started = time.perf_counter()
    with loaded_engine(path, engine) as loaded:
        load_seconds = time.perf_counter() - started
        request = _request(loaded, prompt, answer, sampling)
        with open_stream(loaded, request) as events:
            whole = fold(events)
        facts = {"model": str(path), **_facts(loaded, request, whole), "load_seconds": load_seconds}
    print(json_text(facts))


def _request(engine: Engine, prompt: Prompt, answer: AnswerOptions, sampling: SamplingOptions) -> Request:
    if prompt.raw:
        return raw_request(engine, prompt.text, answer, sampling, prompt.num_logprobs)
    messages = [*answer.first_messages, {"role": "user", "content": prompt.text}]
    return chat_request(engine, messages, answer, sampling, prompt.num_logprobs)


def _facts(engine: Engine, request: Request, answer: Answer) -> dict[str, Any]:
    timings = answer.timings
    facts: dict[str, Any] = {
        "text": answer.text,
        "finish_reason": answer.finish_reason,
        "token_ids": list(answer.token_ids),
        "num_prompt_tokens": timings.num_prompt_tokens,
        "num_answer_tokens": timings.num_answer_tokens,
        "prefill_seconds": timings.prefill_seconds,
        "decode_seconds": timings.decode_seconds,
        "prefill_tok_s": timings.prefill_tok_s,
        "decode_tok_s": timings.decode_tok_s,
        "seed": timings.seed,
        "sampling": {**asdict(request.sampling), "seed": timings.seed},
        "engine": asdict(engine.config),
    }
    if request.num_logprobs is not None:
        facts["logprobs"] = [_logprob_facts(engine, entry) for entry in answer.logprobs]
    return facts


def _logprob_facts(engine: Engine, entry: TokenLogprobs) -> dict[str, Any]:
    top = [_token_facts(engine, token_id, logprob) for token_id, logprob in entry.top]
    return {**_token_facts(engine, entry.token_id, entry.logprob), "top": top}


def _token_facts(engine: Engine, token_id: int, logprob: float) -> dict[str, Any]:
    """JSON has no infinity: a log-probability of zero probability is null."""
    in_vocabulary = token_id < engine.tokenizer.vocab_size
    token = engine.tokenizer.token_bytes(token_id).decode(errors="replace") if in_vocabulary else ""
    return {"id": token_id, "token": token, "logprob": logprob if math.isfinite(logprob) else None}
