"""`ktdesk inspect`."""

from __future__ import annotations

from typing import Annotated

import typer

from ktdesk.command import settings_of


def inspect(
    ctx: typer.Context,
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE", help="A GGUF file (any shard of several), a model of `ktdesk models`, or 'demo'."
        ),
    ],
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    template: Annotated[bool, typer.Option("--template", help="Print the chat template too.")] = False,
) -> int:
    """Show what a model file holds, and what would not run and why.

    Ends with 0 if the model runs; else with the exit code that running it would end with.
    """
    from ktdesk.model_paths import model_path
    from ktdesk.model_report import read_report
    from ktdesk.report_text import as_text, to_json

    report = read_report(model_path(file, settings_of(ctx)))
    print(to_json(report) if as_json else as_text(report, with_template=template))
    return report.exit_code
