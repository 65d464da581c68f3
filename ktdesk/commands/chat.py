"""`ktdesk chat`."""

from __future__ import annotations

from typing import Annotated

import typer

from ktdesk.command import settings_of
from ktdesk.options import AnswerOptions, EngineOptions, SamplingOptions


def chat(
    ctx: typer.Context,
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A GGUF file (any shard of several), or 'demo'.")],
    *,
    answer: AnswerOptions,
    sampling: SamplingOptions,
    engine: EngineOptions,
) -> None:
    """Talk with a model, line by line.

    Ctrl-C stops an answer; at the prompt, Ctrl-C or Ctrl-D leaves. /help lists the commands.
    """
    from ktdesk.chat_loop import chat_with
    from ktdesk.model_paths import model_path

    chat_with(model_path(model, settings_of(ctx)), answer, sampling, engine)
