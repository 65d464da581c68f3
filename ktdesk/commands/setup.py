"""`ktdesk setup`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from ktdesk.command import settings_of
from ktdesk.commands.plan import WishOptions


@dataclass(frozen=True)
class SetupOptions:
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Ask nothing.")] = False
    force: Annotated[bool, typer.Option("--force", help="Go on although the plan says that it does not fit.")] = False
    measure: Annotated[bool, typer.Option("--measure", help="Measure the machine again.")] = False
    start_over: Annotated[bool, typer.Option("--start-over", help="Forget what an interrupted setup had done.")] = False
    quant: Annotated[
        str | None,
        typer.Option(metavar="QUANT", help="Of a hub's or catalogue's model.", show_default="the most exact that fits"),
    ] = None
    source: Annotated[
        list[str] | None,
        typer.Option(
            help="hub, modelscope or a mirror's address, as for `pull`.", show_default="KTDESK_SOURCES, or hub"
        ),
    ] = None
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object at the end.")] = False


def setup(
    ctx: typer.Context,
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL", help="A GGUF file, 'demo', OWNER/REPOSITORY[:QUANT], a URL, or a name of `plan --list`."
        ),
    ],
    options: SetupOptions,
    wishes: WishOptions,
) -> int:
    """From nothing to a running model: probe, measure, plan, rehearse, fetch, load, ask, measure, keep.

    Interrupted anywhere, the same command goes on where it was.
    """
    from ktdesk.setting_up import set_up

    settings = settings_of(ctx)
    return set_up(model, wishes.wishes_with(settings), settings, options)
