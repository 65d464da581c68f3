"""`ktdesk cache ls` and `rm`: the prefixes that servers keep on disk."""

from __future__ import annotations

import json
from contextlib import ExitStack
from datetime import datetime
from typing import Annotated

import typer

from ktdesk.command import settings_of
from ktdesk.errors import UsageError
from ktdesk.terminal import note, on_one_line


def ls(
    ctx: typer.Context,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """List the prefixes on disk by model and way to compute, the longest unused first."""
    from ktdesk.report_text import bytes_text
    from ktdesk_engine.prefix_cache.page_folder import folders_of, stored_models

    folder = settings_of(ctx).prefix_folder
    found = [model for each in folders_of(folder) for model in stored_models(each)]
    models = sorted(found, key=lambda model: model.used_ns)
    if as_json:
        print(json.dumps({"folder": str(folder), "models": [model._asdict() for model in models]}, indent=2))
        return
    if not models:
        note(f"no prefixes in {folder}: `ktdesk serve --cache-disk GIB` keeps some")
    for model in models:
        used, size = datetime.fromtimestamp(model.used_ns / 1e9), bytes_text(model.num_bytes)
        name = on_one_line(model.name)
        print(f"{model.fingerprint[:12]}  {size:>10}  {model.num_pages:>7} pages  {used:%Y-%m-%d %H:%M}  {name}")


def rm(
    ctx: typer.Context,
    models: Annotated[
        list[str] | None,
        typer.Argument(metavar="MODEL", help="Names, or first letters of the ids, as `ktdesk cache ls` shows them."),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Those of every model.")] = False,
) -> None:
    """Delete prefixes on disk. No server may be using them."""
    from ktdesk.report_text import bytes_text
    from ktdesk_engine.prefix_cache.disk_store import lock_folder
    from ktdesk_engine.prefix_cache.page_folder import StoredModel, folders_of, remove_pages, stored_models

    if everything == bool(models):
        raise UsageError("name what to delete, or give --all; `ktdesk cache ls` lists what is there")

    def is_meant(model: StoredModel) -> bool:
        return everything or any(model.name == name or model.fingerprint.startswith(name) for name in models or ())

    folder = settings_of(ctx).prefix_folder
    found = [(each, model) for each in folders_of(folder) for model in stored_models(each)]
    for name in models or ():
        if not any(model.name == name or model.fingerprint.startswith(name) for _, model in found):
            raise UsageError(f"nothing of {name!r} is cached on disk; `ktdesk cache ls` lists what is there")
    meant = [(each, model.fingerprint) for each, model in found if is_meant(model)]
    with ExitStack() as locks:
        for each in sorted({each for each, _ in meant}):
            locks.enter_context(lock_folder(each))
        freed_bytes = sum(remove_pages(each, fingerprint) for each, fingerprint in meant)
    note(f"{bytes_text(freed_bytes)} freed")
