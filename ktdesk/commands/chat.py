"""`ktdesk chat`."""

from __future__ import annotations

from typing import Annotated

import typer

from ktdesk.command import settings_of
from ktdesk.options import KEEP_ALIVE_SECONDS, AnswerOptions, EngineOptions, KeepAlive, PresetName, SamplingOptions


def chat(
    ctx: typer.Context,
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL", help="A GGUF file (any shard of several), a model of `ktdesk models`, or 'demo'."
        ),
    ],
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
    """Talk with a model, line by line.

    A server that has the model (`ktdesk serve`) answers; else one is started, which leaves by itself.
    Ctrl-C stops an answer; at the prompt, Ctrl-C or Ctrl-D leaves. /help lists the commands.
    """
    from ktdesk.asking import Asked, check_options
    from ktdesk.chat_loop import chat_with
    from ktdesk.finding import asked_model
    from ktdesk.model_paths import model_path

    if preset is not None:
        from ktdesk.profiles import with_preset

        sampling = with_preset(sampling, preset, settings_of(ctx))
    check_options(Asked("", answer, sampling))
    path = model_path(model, settings_of(ctx))
    with asked_model(path, settings_of(ctx), engine, local=no_server, keep_alive_seconds=keep_alive) as asked:
        chat_with(asked, answer, sampling)
