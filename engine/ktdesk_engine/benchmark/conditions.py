"""Where and under what load a measurement was made."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

import psutil

from ktdesk_engine.machine import CPU_FOLDER, num_physical_cores
from ktdesk_engine.system_files import size_bytes, text_of

PROC = Path("/proc")
QUIET_CORES = 0.1
"""What other processes may use of the cores without a warning."""


@dataclass(frozen=True)
class Machine:
    """What the numbers depend on."""

    cpu: str
    num_cores: int
    """That this process may use."""
    memory_bytes: int
    l3_bytes: int
    """As the system reports it, which under a hypervisor may be fiction."""


@dataclass(frozen=True)
class Load:
    """What else ran during the measurement."""

    other_cores: float
    """Cores that other processes of this machine kept busy, on average."""
    stolen_cores: float
    """Cores that the hypervisor gave to others, on average."""
    load_average: float
    """Of the last minute, at the end; this process counts too."""

    @property
    def taken_cores(self) -> float:
        return self.other_cores + self.stolen_cores

    @property
    def is_busy(self) -> bool:
        return self.taken_cores > QUIET_CORES


def read_machine(proc: Path = PROC, cpu_folder: Path = CPU_FOLDER) -> Machine:
    return Machine(
        cpu=_cpu_name(proc),
        num_cores=num_physical_cores(cpu_folder),
        memory_bytes=int(psutil.virtual_memory().total),
        l3_bytes=l3_bytes(cpu_folder),
    )


def l3_bytes(cpu_folder: Path = CPU_FOLDER) -> int:
    """Of all third-level caches together; 0 where the system tells of none."""
    caches: dict[str, int] = {}
    for index in cpu_folder.glob("cpu[0-9]*/cache/index*"):
        if text_of(index / "level") == "3":
            caches[text_of(index / "shared_cpu_list")] = size_bytes(text_of(index / "size"))
    return sum(caches.values())


class LoadMeter:
    """Counts from when it is made."""

    def __init__(self) -> None:
        self._start = _Times.now()

    def read(self) -> Load:
        """Since the start."""
        now, start = _Times.now(), self._start
        wall = max(now.wall - start.wall, 1e-9)
        others = (now.busy - start.busy) - (now.own - start.own)
        return Load(
            other_cores=max(others / wall, 0.0),
            stolen_cores=max((now.stolen - start.stolen) / wall, 0.0),
            load_average=os.getloadavg()[0],
        )


@dataclass(frozen=True)
class _Times:
    """In seconds, all cores together."""

    wall: float
    busy: float
    stolen: float
    own: float

    @classmethod
    def now(cls) -> _Times:
        system, own = psutil.cpu_times(), os.times()
        # On Linux guest is counted in user, and steal stands beside it.
        busy = system.user + system.system + getattr(system, "nice", 0) + getattr(system, "irq", 0)
        busy += getattr(system, "softirq", 0)
        own_seconds = own.user + own.system + own.children_user + own.children_system
        return cls(time.perf_counter(), busy, getattr(system, "steal", 0.0), own_seconds)


def _cpu_name(proc: Path) -> str:
    try:
        lines = (proc / "cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return "unknown"
    names = [value.strip() for key, _, value in (line.partition(":") for line in lines) if key.strip() == "model name"]
    return names[0] if names else "unknown"
