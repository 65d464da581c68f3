"""`ktdesk pull`."""

from __future__ import annotations

from typing import Annotated

import typer

from ktdesk.command import settings_of


def pull(
    ctx: typer.Context,
    model: Annotated[
        str,
        typer.Argument(metavar="MODEL", help="OWNER/REPOSITORY[:QUANT], a name of `ktdesk plan --list`, or a URL."),
    ],
    quant: Annotated[
        str | None, typer.Option(metavar="QUANT", help="Such as Q4_K_M.", show_default="the largest that fits here")
    ] = None,
    revision: Annotated[
        str | None, typer.Option(help="A branch, tag or commit of the repository.", show_default="its default")
    ] = None,
    source: Annotated[
        list[str] | None,
        typer.Option(
            help="hub, modelscope or a mirror's address. Of several, the later ones stand in, for files of the same "
            "SHA-256.",
            show_default="KTDESK_SOURCES, or hub",
        ),
    ] = None,
    adopt: Annotated[
        list[str] | None,
        typer.Option(metavar="DIR", help="Look here too for files that are here already. May be repeated."),
    ] = None,
    no_adopt: Annotated[
        bool, typer.Option("--no-adopt", help="Link nothing of other programs' folders: fetch all.")
    ] = False,
    update: Annotated[
        bool, typer.Option("--update", help="Replace files that are right where the source has others now.")
    ] = False,
    connections: Annotated[int, typer.Option(min=1, max=64, help="Ranges that are fetched at once.")] = 8,
    force: Annotated[
        bool, typer.Option("--force", help="Fetch although it does not fit on the disk, or will not run here.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object at the end.")] = False,
) -> None:
    """Fetch a model into the data folder, whole and checked.

    Interrupted anywhere, the same command goes on from there. What other programs have of it (huggingface_hub, LM
    Studio, llama.cpp, Ollama) is linked instead of fetched. Standard output gets the path of its first file.
    """
    from ktdesk.json_output import json_text
    from ktdesk.pulling import PullWish, pull_model, pulled_facts

    wish = PullWish(
        model, quant, revision, tuple(source or ()), tuple(adopt or ()), not no_adopt, update, connections, force
    )
    pulled = pull_model(wish, settings_of(ctx))
    print(json_text(pulled_facts(pulled)) if as_json else pulled.model.path)
