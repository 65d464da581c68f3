"""`ktdesk eval`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ktdesk.command import settings_of
from ktdesk.options import EngineOptions


def eval(
    ctx: typer.Context,
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL", help="A GGUF file (any shard of several), a model of `ktdesk models`, or 'demo'."
        ),
    ],
    text: Annotated[
        Path | None, typer.Option(metavar="FILE", help="What to read, in UTF-8.", show_default="English that ships")
    ] = None,
    compute: Annotated[
        str, typer.Option(help="What to measure. int8: on vectors. mixed: many tokens on tiles. bf16. auto: mixed.")
    ] = "auto",
    cache_type: Annotated[
        str | None,
        typer.Option(
            help="What to measure of the cache: float32, f16, bf16 or q8_0.",
            show_default="f16; float32 with --compute float32",
        ),
    ] = None,
    isa: Annotated[
        str | None, typer.Option(help="scalar, avx2, avx512 or amx.", show_default="the widest of this machine")
    ] = None,
    window: Annotated[int, typer.Option(min=2, help="Tokens of each sequence that the text is cut into.")] = 512,
    max_tokens: Annotated[int | None, typer.Option(min=2, help="Read no more of the text.", show_default="all")] = None,
    threads: Annotated[int | None, typer.Option(help="Threads to compute on.", show_default="a core each")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Measure what a way to compute costs in quality.

    Reads a text with the model twice, as --compute and --cache-type say and exactly (float32), and compares what
    the model expects next, at every token: perplexity, KL divergence, and how often the likeliest token is the same.
    """
    from ktdesk.model_paths import model_path
    from ktdesk.quality import as_text, measure, read_text, to_json

    wanted = read_text(text)
    options = EngineOptions(context=window, threads=threads, compute=compute, isa=isa, cache_type=cache_type)
    report = measure(model_path(model, settings_of(ctx)), wanted, options, window, max_tokens)
    print(to_json(report) if as_json else as_text(report))
