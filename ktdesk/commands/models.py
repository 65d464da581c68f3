"""`ktdesk models`: what is in the store, `verify` and `rm`."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from ktdesk.command import settings_of
from ktdesk.errors import UsageError
from ktdesk.exit_codes import ExitCode
from ktdesk.settings import DEMO_VARIABLE
from ktdesk.terminal import note, on_one_line


def ls(
    ctx: typer.Context,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """List the models in the data folder, whole or on their way."""
    from ktdesk.amounts import bytes_text
    from ktdesk.json_output import json_text
    from ktdesk.store_listing import looked_at, model_facts, problem_text, state_text
    from ktdesk_wizard.store.models import stored_models

    folder = settings_of(ctx).models_folder
    models = [looked_at(model) for model in stored_models(folder)]
    if as_json:
        print(json_text({"folder": str(folder), "models": [model_facts(model) for model in models]}))
        return
    for model in models:
        problem = problem_text(model)
        print(f"{bytes_text(model.num_bytes):>10}  {state_text(model):<20}  {on_one_line(model.name)}{problem}")
    if not models:
        demo = os.environ.get(DEMO_VARIABLE)
        besides = f"; the demo model, `demo`, is {on_one_line(demo)} ({DEMO_VARIABLE})" if demo else ""
        note(f"no models in {folder} yet: `ktdesk pull MODEL` fetches one{besides}")


def verify(
    ctx: typer.Context,
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="MODEL", help="As `ktdesk models` lists them.", show_default="all of them"),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> int:
    """Read every file and compare it with its hash. Ends with 3 if one is missing or wrong, or no model.

    What is wrong, `ktdesk pull` fetches again, and nothing else.
    """
    from ktdesk.json_output import json_text
    from ktdesk.store_listing import chosen_models, verified_facts

    models = chosen_models(settings_of(ctx), names)
    if not models:
        note(f"no models in {settings_of(ctx).models_folder} yet: there is nothing to verify")
    facts = [verified_facts(model) for model in models]
    if as_json:
        print(json_text({"models": facts}))
    else:
        for model in facts:
            for file in model["files"]:
                print(f"{file['finding']:<20}  {on_one_line(file['path'])}")
            if model["problem"] is not None:
                print(f"{'unusable':<20}  {on_one_line(model['name'])}: {on_one_line(model['problem'])}")
    bad = [file for model in facts for file in model["files"] if file["finding"] in ("wrong", "missing")]
    is_bad = bool(bad) or any(model["problem"] is not None for model in facts)
    return ExitCode.MODEL_FILE if is_bad else ExitCode.OK


def rm(
    ctx: typer.Context,
    names: Annotated[list[str] | None, typer.Argument(metavar="MODEL", help="As `ktdesk models` lists them.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Delete models, also what was fetched of them so far. Files that were only linked stay where they are."""
    from ktdesk.amounts import bytes_text
    from ktdesk.json_output import json_text
    from ktdesk.store_listing import chosen_models
    from ktdesk_wizard.store.checking import remove

    if not names:
        raise UsageError("name what to delete; `ktdesk models` lists what is there")
    settings = settings_of(ctx)
    models = chosen_models(settings, names)
    freed = {model.name: remove(model, settings.models_folder) for model in models}
    if as_json:
        print(json_text({"removed": [{"name": name, "freed_bytes": size} for name, size in freed.items()]}))
        return
    for name, size in freed.items():
        note(f"{on_one_line(name)} is deleted, {bytes_text(size)} freed")
