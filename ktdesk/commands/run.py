"""`ktdesk run`."""

from __future__ import annotations

from typing import Annotated

import typer

from ktdesk.command import settings_of
from ktdesk.errors import UsageError
from ktdesk.options import AnswerOptions, EngineOptions, SamplingOptions
from ktdesk.text_input import argument_text


def run(
    ctx: typer.Context,
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A GGUF file (any shard of several), or 'demo'.")],
    prompt: Annotated[
        str | None,
        typer.Argument(metavar="PROMPT", help="What to ask; '-' reads it from standard input.", parser=argument_text),
    ] = None,
    raw: Annotated[
        bool, typer.Option("--raw", help="Go on from the text as it is, without the chat template.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object: answer, counts, timings, seed.")
    ] = False,
    logprobs: Annotated[
        int | None,
        typer.Option(
            metavar="N", help="With --json: log-probabilities of each token and the N likeliest.", show_default="none"
        ),
    ] = None,
    *,
    answer: AnswerOptions,
    sampling: SamplingOptions,
    engine: EngineOptions,
) -> None:
    """Answer one prompt.

    Text that is piped in comes after PROMPT. Standard output gets the answer and nothing else; statistics go to
    standard error.
    """
    if logprobs is not None and not as_json:
        raise UsageError("--logprobs needs --json")
    if raw and (answer.system is not None or answer.think is not None):
        raise UsageError("--raw uses no chat template: leave --system and --think out")
    from ktdesk.model_paths import model_path
    from ktdesk.one_shot import Prompt, answer_as_json, answer_once, read_prompt

    path = model_path(model, settings_of(ctx))
    wanted = Prompt(read_prompt(prompt), raw, logprobs)
    (answer_as_json if as_json else answer_once)(path, wanted, answer, sampling, engine)
