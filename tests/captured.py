"""The facts of captured machines, as `probe` reads them."""

from __future__ import annotations

from pathlib import Path

from machine_trees import Captured, write_machine

from ktdesk_wizard.probe.machine_facts import MachineFacts
from ktdesk_wizard.probe.nvml import NoNvmlError, Nvml
from ktdesk_wizard.probe.probe import read_machine_facts


def facts_below(captured: Captured, folder: Path = Path("/home/user/models")) -> MachineFacts:
    try:
        nvml: Nvml | NoNvmlError = (
            NoNvmlError("the package nvidia-ml-py is not installed") if captured.nvml is None else Nvml(captured.nvml)
        )
    except NoNvmlError as reason:
        nvml = reason
    return read_machine_facts(captured.root, nvml, lambda: captured.amx_refusal, folder)


def captured_facts(name: str, root: Path) -> MachineFacts:
    return facts_below(write_machine(name, root))
