"""One answer, written as it comes: shared by `run`, `demo` and `chat`."""

from __future__ import annotations

import sys
from collections.abc import Generator, Iterator
from contextlib import closing
from dataclasses import dataclass

from ktdesk.amounts import counted
from ktdesk.asking import Asked, AskedModel
from ktdesk.terminal import note, without_control
from ktdesk_engine.answer import StreamEvent, Timings
from ktdesk_engine.sampler import TokenLogprobs


@dataclass(frozen=True)
class Answer:
    """A stream folded up."""

    text: str
    token_ids: tuple[int, ...]
    logprobs: tuple[TokenLogprobs, ...]
    finish_reason: str
    timings: Timings

    @property
    def statistics(self) -> str:
        """One line for people."""
        t = self.timings
        cached = f" ({t.num_cached_tokens:,} cached)" if t.num_cached_tokens else ""
        read = f"{counted(t.num_prompt_tokens, 'prompt token')}{cached}"
        prompt = f"{read} in {t.prefill_seconds:.2f} s ({t.prefill_tok_s:,.0f} tok/s)"
        # The first token comes with the prompt: of one alone there is no speed.
        speed = f" at {t.decode_tok_s:.1f} tok/s" if t.decode_tok_s else ""
        return f"{prompt}, {counted(t.num_answer_tokens, 'answer token')}{speed}, seed {t.seed}"


def open_stream(model: AskedModel, asked: Asked) -> closing[Generator[StreamEvent, None, None]]:
    """The answer's events; leaving the block cancels what is left of it."""
    return closing(model.stream(asked))


def fold(events: Iterator[StreamEvent]) -> Answer:
    """Reads a stream to its end."""
    texts: list[str] = []
    ids: list[int] = []
    logprobs: list[TokenLogprobs] = []
    for event in events:
        texts.append(event.text)
        ids += event.token_ids
        logprobs += event.logprobs
    assert event.finish_reason is not None
    assert event.timings is not None
    return Answer("".join(texts), tuple(ids), tuple(logprobs), event.finish_reason, event.timings)


def print_answer(model: AskedModel, asked: Asked, written: list[str] | None = None) -> Answer:
    """Writes the answer to standard output as it comes, and its statistics to standard error.

    written: takes the pieces, for a caller who wants them even if the answer is stopped by Ctrl-C.
    """
    with open_stream(model, asked) as events:
        answer = fold(_printed(events, [] if written is None else written))
    print(flush=True)
    note(answer.statistics)
    return answer


def _printed(events: Iterator[StreamEvent], written: list[str]) -> Iterator[StreamEvent]:
    to_terminal = sys.stdout.isatty()
    for event in events:
        if event.text:
            written.append(event.text)
            print(without_control(event.text) if to_terminal else event.text, end="", flush=True)
        yield event
