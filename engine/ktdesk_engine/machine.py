"""What this process may use of the machine: the little that the engine must know to run without being told."""

from __future__ import annotations

import os
from pathlib import Path

import psutil

CPU_FOLDER = Path("/sys/devices/system/cpu")


def num_physical_cores(cpu_folder: Path = CPU_FOLDER) -> int:
    """Cores that this process's affinity allows; two hardware threads of one core count once."""
    if not hasattr(os, "sched_getaffinity"):
        return psutil.cpu_count(logical=False) or 1
    cores = {_siblings(cpu_folder, cpu) for cpu in os.sched_getaffinity(0)}
    return len(cores)


def _siblings(cpu_folder: Path, cpu: int) -> str:
    """The hardware threads that share a core, as the system lists them."""
    try:
        return (cpu_folder / f"cpu{cpu}" / "topology" / "thread_siblings_list").read_text().strip()
    except OSError:
        return str(cpu)


def available_memory_bytes() -> int:
    """What can be taken without swapping; cached file pages count, for they can be dropped."""
    return int(psutil.virtual_memory().available)
