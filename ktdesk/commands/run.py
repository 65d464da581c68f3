"""`ktdesk run`."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from ktdesk.command import settings_of
from ktdesk.errors import UsageError
from ktdesk.options import KEEP_ALIVE_SECONDS, AnswerOptions, EngineOptions, KeepAlive, PresetName, SamplingOptions
from ktdesk.text_input import argument_text


def run(
    ctx: typer.Context,
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL", help="A GGUF file (any shard of several), a model of `ktdesk models`, or 'demo'."
        ),
    ],
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
    no_server: Annotated[
        bool, typer.Option("--no-server", help="Load the model here, even if a server has it.")
    ] = False,
    keep_alive: KeepAlive = KEEP_ALIVE_SECONDS,
    preset: PresetName = None,
    *,
    answer: AnswerOptions,
    sampling: SamplingOptions,
    engine: EngineOptions,
) -> None:
    """Answer one prompt.

    A server that has the model (`ktdesk serve`) answers; else one is started, and leaves when it is not asked any
    more. Text that is piped in comes after PROMPT. Standard output gets the answer and nothing else; statistics go
    to standard error.
    """
    if logprobs is not None and not as_json:
        raise UsageError("--logprobs needs --json")
    if raw and (answer.system is not None or answer.think is not None):
        raise UsageError("--raw uses no chat template: leave --system and --think out")
    from ktdesk.asking import Asked, check_options
    from ktdesk.finding import asked_model
    from ktdesk.json_output import json_text
    from ktdesk.model_paths import model_path
    from ktdesk.one_shot import Prompt, answer_facts, answer_once, read_prompt

    if preset is not None:
        from ktdesk.profiles import with_preset

        sampling = with_preset(sampling, preset, settings_of(ctx))
    check_options(Asked("", answer, sampling, logprobs))
    path = model_path(model, settings_of(ctx))
    wanted = Prompt(read_prompt(prompt), raw, logprobs)
    started = time.perf_counter()
    with asked_model(path, settings_of(ctx), engine, local=no_server, keep_alive_seconds=keep_alive) as asked:
        load_seconds = time.perf_counter() - started
        if not as_json:
            answer_once(asked, wanted, answer, sampling)
            return
        facts = answer_facts(asked, wanted, answer, sampling)
    print(json_text({"model": str(path), **facts, "load_seconds": load_seconds}))
