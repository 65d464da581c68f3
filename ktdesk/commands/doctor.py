"""`ktdesk doctor`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ktdesk.command import settings_of


def doctor(
    ctx: typer.Context,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    bundle: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Write a report to send to others: facts, findings, versions; without names, folders and keys.",
            show_default="none",
        ),
    ] = None,
) -> int:
    """What is wrong or slow on this machine, on what evidence, and how to mend it. Changes nothing.

    Ends with 6 if something will not work.
    """
    from ktdesk.diagnosing import as_text, diagnose, write_bundle
    from ktdesk.exit_codes import ExitCode
    from ktdesk.json_output import json_text
    from ktdesk.terminal import note
    from ktdesk_wizard.doctor.diagnosis import has_trouble

    diagnosis = diagnose(settings_of(ctx))
    if bundle is not None:
        write_bundle(diagnosis, bundle)
        note(f"{bundle} is written; read it before you send it")
    print(json_text(diagnosis.as_facts()) if as_json else as_text(diagnosis))
    return ExitCode.RESOURCES if has_trouble(diagnosis.findings) else ExitCode.OK
