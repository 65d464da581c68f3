"""`ktdesk profile ls` and `ktdesk profile show`."""

from __future__ import annotations

from typing import Annotated

import typer

from ktdesk.command import settings_of


def ls(
    ctx: typer.Context,
    kind: Annotated[
        str | None, typer.Argument(metavar="KIND", help="machine, model, placement, preset or use.", show_default="all")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """List the profiles that ship, and yours in `profiles/` of the data folder, which override them."""
    from dataclasses import asdict

    from ktdesk.json_output import json_text
    from ktdesk.profiles import as_lines, listed

    profiles = listed(settings_of(ctx), kind)
    if as_json:
        print(json_text({"profiles": [asdict(profile) for profile in profiles]}))
    else:
        print("\n".join(as_lines(profiles)))


def show(
    ctx: typer.Context,
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME",
            help="As `profile ls` lists it, KIND/NAME, or a model.",
            show_default="how experts were used",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Show one profile, and the file that it is from; without a name, how the experts of models were used here."""
    from dataclasses import asdict

    from ktdesk.json_output import json_text
    from ktdesk.profiles import as_yaml, listed, named
    from ktdesk.terminal import note, on_one_line

    if name is None:
        uses = listed(settings_of(ctx), "use")
        if as_json:
            print(json_text({"profiles": [asdict(use) for use in uses]}))
        elif uses:
            print("\n\n".join(as_yaml(use) for use in uses))
        else:
            note("nothing was counted here yet: a server keeps how the experts of its models are used")
        return
    profile = named(settings_of(ctx), name)
    if profile is None:
        note(f"{on_one_line(name)}: nothing was counted yet of how its experts are used; `ktdesk plan` says more of it")
        if as_json:
            print(json_text({"profiles": []}))
        return
    print(json_text(asdict(profile)) if as_json else as_yaml(profile))
