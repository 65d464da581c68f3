"""`probe`: reads all facts about a machine, in far less than two seconds and without root."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from ktdesk_engine.kernels import why_no_amx
from ktdesk_engine.machine import ROOT
from ktdesk_wizard.probe.cpu import AmxRefusal, allowed_cpus, read_cpu
from ktdesk_wizard.probe.cpuinfo import read_cpuinfo
from ktdesk_wizard.probe.disk import read_disk
from ktdesk_wizard.probe.gpus import read_gpus
from ktdesk_wizard.probe.machine_facts import MachineFacts
from ktdesk_wizard.probe.memory import read_memory
from ktdesk_wizard.probe.numa import read_numa
from ktdesk_wizard.probe.nvml import NoNvmlError, Nvml, load_nvml
from ktdesk_wizard.probe.surroundings import read_surroundings


def probe(folder: Path) -> MachineFacts:
    """Of this machine. folder: where models are kept."""
    try:
        nvml: Nvml | NoNvmlError = load_nvml()
    except NoNvmlError as reason:
        nvml = reason
    try:
        return read_machine_facts(ROOT, nvml, why_no_amx, folder, os.environ)
    finally:
        if isinstance(nvml, Nvml):
            nvml.close()


def read_machine_facts(
    root: Path, nvml: Nvml | NoNvmlError, amx_refusal: AmxRefusal, folder: Path, environment: Mapping[str, str]
) -> MachineFacts:
    """Of the machine whose trees of /sys and /proc lie below root. environment: its variables."""
    info = read_cpuinfo(root)
    memory = read_memory(root)
    return MachineFacts(
        surroundings=read_surroundings(root, info),
        cpu=read_cpu(root, info, amx_refusal),
        numa=read_numa(root, info, allowed_cpus(root)),
        memory=memory,
        gpus=read_gpus(root, nvml, (memory.total_bytes, memory.available_bytes), environment),
        disk=read_disk(root, folder),
    )
