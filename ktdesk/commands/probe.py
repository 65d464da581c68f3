"""`ktdesk probe`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from ktdesk.command import settings_of

if TYPE_CHECKING:
    from pathlib import Path

    from ktdesk_wizard.probe.machine_facts import MachineFacts


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
        bool,
        typer.Option(
            "--measure", help="Measure memory and arithmetic too, and keep it for plans (less than a minute)."
        ),
    ] = False,
    sources: Annotated[bool, typer.Option("--sources", help="Print where each fact is from.")] = False,
) -> int:
    """Show what this machine is: processor, memory, graphics cards, disk. Needs no root."""
    from pathlib import Path

    from ktdesk.json_output import json_text
    from ktdesk.machine_text import as_text
    from ktdesk_wizard.probe.facts_json import facts_to_json
    from ktdesk_wizard.probe.measurement import with_measurement
    from ktdesk_wizard.probe.probe import probe

    data_folder = settings_of(ctx).data_folder
    place = Path(folder).absolute() if folder else (data_folder / "models").absolute()
    facts = probe(place)
    if measure:
        _measure(facts, data_folder)
    facts = with_measurement(facts, data_folder)
    print(json_text(facts_to_json(facts)) if as_json else as_text(facts, with_sources=sources))
    return 0


def _measure(facts: MachineFacts, data_folder: Path) -> None:
    """Kept whole, or not at all where it is stopped."""
    from ktdesk.terminal import Progress, tell
    from ktdesk_wizard.probe.measurement import check_can_be_kept, measure, save_measurement
    from ktdesk_wizard.probe.measuring_turn import measuring_turn

    check_can_be_kept(data_folder)
    progress, wait_told = Progress(), False

    def waiting() -> None:
        nonlocal wait_told
        if not wait_told:
            progress.step("another ktdesk measures this machine: waiting for what it finds")
        wait_told = True

    try:
        with measuring_turn(data_folder, waiting) as is_done:
            if not is_done:
                progress.step("measuring memory and processor, for less than a minute")
                save_measurement(measure(facts, advance=lambda share: progress.tell(f"{share:4.0%}")), data_folder)
    except (KeyboardInterrupt, SystemExit):
        progress.erase()
        tell("stopped: nothing of this measurement is kept; an earlier one stays")
        raise
    progress.erase()
