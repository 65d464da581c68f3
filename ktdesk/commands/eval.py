"""`ktdesk eval`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ktdesk.command import settings_of
from ktdesk.options import EngineOptions


def eval(
    ctx: typer.Context,
    models: Annotated[
        list[str],
        typer.Argument(
            metavar="MODEL...",
            help="A GGUF file (any shard of several), a model of `ktdesk models`, or 'demo'; several files of one "
            "model are compared with the first.",
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
    defer: Annotated[
        str, typer.Option(help="How many of a token's experts come one layer late (docs/deferral.md).")
    ] = "0",
    experts: Annotated[
        str | None, typer.Option(help="How many experts a token uses.", show_default="as trained")
    ] = None,
    isa: Annotated[
        str | None, typer.Option(help="scalar, avx2, avx512 or amx.", show_default="the widest of this machine")
    ] = None,
    window: Annotated[int, typer.Option(min=2, help="Tokens of each sequence that the text is cut into.")] = 512,
    max_tokens: Annotated[int | None, typer.Option(min=2, help="Read no more of the text.", show_default="all")] = None,
    resume: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Keep what is measured here; the same command goes on with it."),
    ] = None,
    threads: Annotated[int | None, typer.Option(help="Threads to compute on.", show_default="a core each")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Measure what a way to compute costs in quality.

    Reads a text with the model twice, as the options say and exactly (float32), and compares what the model expects
    next, at every token: perplexity, KL divergence, and how often the likeliest token is the same.

    --compute, --cache-type, --defer and --experts take several values with commas between them: all combinations are
    measured, side by side. `ktdesk plan` shows what was found beside its plan.
    """
    from ktdesk.eval_variants import Choices, variants_of
    from ktdesk.model_paths import model_path
    from ktdesk.quality import as_table, as_text, measure, read_text, report_facts, to_json
    from ktdesk.quality_figures import save_figures
    from ktdesk.terminal import note
    from ktdesk_wizard.errors import HomeFolderError

    wanted = read_text(text)
    paths = [model_path(model, settings_of(ctx)) for model in models]
    base = EngineOptions(context=window, threads=threads, isa=isa)
    variants = variants_of(paths, Choices(compute, cache_type, defer, experts), base)
    reports = measure(variants, wanted, window, max_tokens, resume)
    if as_json:
        print(to_json(reports))
    else:
        print(as_text(reports[0]) if len(reports) == 1 else as_table(reports))
    try:
        for path in dict.fromkeys(paths):
            found = [report_facts(report) for report in reports if report.model == path]
            save_figures(settings_of(ctx).data_folder, path, found)
    except HomeFolderError as error:
        note(str(error))
