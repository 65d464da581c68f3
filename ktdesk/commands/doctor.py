"""`ktdesk doctor`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ktdesk.command import settings_of
from ktdesk.errors import UsageError


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
    gpu: Annotated[
        bool,
        typer.Option("--gpu", help="Test the GPU: its kernels against references, the hybrid half, rates, latencies."),
    ] = False,
    accelerator: Annotated[
        str,
        typer.Option(metavar="KIND", help="With --gpu: cuda; or host-thread, a rehearsal without a GPU."),
    ] = "cuda",
) -> int:
    """What is wrong or slow on this machine, on what evidence, and how to mend it. Changes nothing.

    Ends with 6 if something will not work; with --gpu, if there is no GPU to compute on or a check of it failed, and
    with 8 if none failed, but five minutes did not suffice for all.
    """
    if gpu:
        if bundle is not None:
            raise UsageError("--bundle is a report without --gpu: keep what --gpu --json prints instead")
        from ktdesk.gpu_testing import examine_gpu

        return examine_gpu(accelerator, settings_of(ctx).models_folder, as_json=as_json)
    if accelerator != "cuda":
        raise UsageError("--accelerator is for --gpu")
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
