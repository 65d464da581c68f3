"""The facts of captured machines, as `probe` reads them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from machine_trees import Captured, write_machine

from ktdesk_wizard.probe.machine_facts import MachineFacts
from ktdesk_wizard.probe.nvml import NoNvmlError, Nvml
from ktdesk_wizard.probe.probe import read_machine_facts

NO_VARIABLES: Mapping[str, str] = MappingProxyType({})


def facts_below(
    captured: Captured, folder: Path = Path("/home/user/models"), environment: Mapping[str, str] = NO_VARIABLES
) -> MachineFacts:
    try:
        nvml: Nvml | NoNvmlError = (
            NoNvmlError("the package nvidia-ml-py is not installed") if captured.nvml is None else Nvml(captured.nvml)
        )
    except NoNvmlError as reason:
        nvml = reason
    return read_machine_facts(captured.root, nvml, lambda: captured.amx_refusal, folder, environment)


def captured_facts(name: str, root: Path) -> MachineFacts:
    return facts_below(write_machine(name, root))
