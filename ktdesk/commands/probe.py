"""`ktdesk probe`."""

from __future__ import annotations

from typing import Annotated

import typer

from ktdesk.command import settings_of


def probe(
    ctx: typer.Context,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object; `ktdesk plan --what-if` reads it.")
    ] = False,
    folder: Annotated[
        str | None,
        typer.Option(metavar="DIR", help="Where models are to be kept.", show_default="in ktdesk's data folder"),
    ] = None,
    measure: Annotated[
        bool, typer.Option("--measure", help="Measure memory and arithmetic too, and keep it for plans (seconds).")
    ] = False,
    sources: Annotated[bool, typer.Option("--sources", help="Print where each fact is from.")] = False,
) -> int:
    """Show what this machine is: processor, memory, graphics cards, disk. Needs no root."""
    from pathlib import Path

    from ktdesk.json_output import json_text
    from ktdesk.machine_text import as_text
    from ktdesk_wizard.probe.facts_json import facts_to_json
    from ktdesk_wizard.probe.measurement import check_can_be_kept, save_measurement, with_measurement
    from ktdesk_wizard.probe.measurement import measure as measured_now
    from ktdesk_wizard.probe.probe import probe

    data_folder = settings_of(ctx).data_folder
    place = Path(folder).absolute() if folder else (data_folder / "models").absolute()
    facts = probe(place)
    if measure:
        check_can_be_kept(data_folder)
        save_measurement(measured_now(facts), data_folder)
    facts = with_measurement(facts, data_folder)
    print(json_text(facts_to_json(facts)) if as_json else as_text(facts, with_sources=sources))
    return 0
