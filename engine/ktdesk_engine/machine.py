"""What this process may use of the machine: the little that the engine must know to run without being told.

Facts are read below a root folder, / unless a test has its own trees of /sys and /proc.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from pathlib import Path
from typing import Literal

import psutil

from ktdesk_engine.errors import ConfigError
from ktdesk_engine.kernels.pools import ThreadPlace
from ktdesk_engine.system_files import cgroup_folders, cpu_list, text_of

Pinning = Literal["node", "core", "none"]

PINNINGS: tuple[Pinning, ...] = ("node", "core", "none")
PIN_VARIABLE = "KTDESK_PIN"
ROOT = Path("/")
CPU_FOLDER = Path("/sys/devices/system/cpu")


@dataclass(frozen=True, order=True)
class Core:
    """A physical core."""

    node: int
    """The NUMA node whose memory is near."""
    cpu: int
    """Of its hardware threads that this process may use, the first."""


def num_physical_cores(cpu_folder: Path = CPU_FOLDER) -> int:
    """Cores that this process's affinity allows; two hardware threads of one core count once."""
    return len(_first_cpus(cpu_folder, _allowed_cpus()))


def usable_cores(root: Path = ROOT, cpus: Sequence[int] | None = None) -> tuple[Core, ...]:
    """By node. cpus: what the process may use; its affinity, which a cgroup's cpuset has already narrowed."""
    allowed = _allowed_cpus() if cpus is None else sorted(cpus)
    nodes = node_of_cpu(root)
    first_cpus = _first_cpus(root / "sys/devices/system/cpu", allowed)
    return tuple(sorted(Core(nodes.get(cpu, 0), cpu) for cpu in first_cpus))


def default_num_threads(root: Path = ROOT, cpus: Sequence[int] | None = None) -> int:
    """One a core, but no more than whole cores of the cgroup's quota.

    A quota of 150 % gives one thread. Two would use up what they may in three quarters of each period and then
    stand still together; and the half that is left is for the threads that run Python.
    """
    quota = cpu_quota(root)
    num_cores = len(usable_cores(root, cpus))
    return num_cores if quota is None else max(1, min(num_cores, int(quota)))


def cpu_quota(root: Path = ROOT) -> float | None:
    """Cores' worth of time that the cgroups of this process grant, the narrowest of them; None: no limit."""
    quotas = [quota for folder in cgroup_folders(root, "cpu") if (quota := _quota_of(folder)) is not None]
    return min(quotas, default=None)


def thread_places(
    num_threads: int | None = None,
    pinning: Pinning | None = None,
    num_nodes: int | None = None,
    *,
    root: Path = ROOT,
    cpus: Sequence[int] | None = None,
) -> tuple[ThreadPlace, ...]:
    """A place for each thread of a pool: the nodes get threads in proportion to their cores.

    num_threads: None takes `default_num_threads`. pinning: None takes KTDESK_PIN, or else `node`, so that a thread
    may move between the cores of its node: when another process takes its core, the system can give it one that
    waits. num_nodes: pretends that the cores are of so many nodes.
    """
    pinning = pinning or _pinning_from_environment()
    cores = usable_cores(root, cpus)
    nodes = _real_nodes(cores) if num_nodes is None else _pretended_nodes(cores, num_nodes)
    count = num_threads or default_num_threads(root, cpus)
    shares = [share for share in zip(nodes, divided(count, [len(node) for node in nodes]), strict=True) if share[1]]
    return tuple(
        ThreadPlace(group, _cpus_of_thread(node, i, share, pinning))
        for group, (node, share) in enumerate(shares)
        for i in range(share)
    )


def available_memory_bytes() -> int:
    """What can be taken without swapping; cached file pages count, for they can be dropped."""
    return int(psutil.virtual_memory().available)


def _pinning_from_environment() -> Pinning:
    value = os.environ.get(PIN_VARIABLE) or "node"
    for pinning in PINNINGS:
        if value == pinning:
            return pinning
    raise ConfigError(f"{PIN_VARIABLE} must be one of {', '.join(PINNINGS)}: {value!r}")


def _cpus_of_thread(node: Sequence[Core], index: int, num_threads: int, pinning: Pinning) -> tuple[int, ...]:
    """Of thread `index` among those of the node. More threads than cores are pinned to the node alone."""
    if pinning == "none":
        return ()
    if pinning == "core" and num_threads <= len(node):
        return (node[index].cpu,)
    return tuple(core.cpu for core in node)


def _real_nodes(cores: Sequence[Core]) -> list[Sequence[Core]]:
    return [list(of_node) for _, of_node in groupby(cores, key=lambda core: core.node)]


def _pretended_nodes(cores: Sequence[Core], num_nodes: int) -> list[Sequence[Core]]:
    """Runs of cores of the same length, or all cores for each node where there are fewer of them."""
    if len(cores) < num_nodes:
        return [cores] * num_nodes
    bounds = [len(cores) * n // num_nodes for n in range(num_nodes + 1)]
    return [cores[begin:end] for begin, end in pairwise(bounds)]


def divided(count: int, weights: Sequence[int]) -> list[int]:
    """Whole numbers in proportion to the weights; their sum is count."""
    total, so_far, bounds = sum(weights), 0, [0]
    for weight in weights:
        so_far += weight
        bounds.append(count * so_far // total)
    return [end - begin for begin, end in pairwise(bounds)]


def _allowed_cpus() -> list[int]:
    return sorted(os.sched_getaffinity(0))


def _first_cpus(cpu_folder: Path, cpus: Sequence[int]) -> list[int]:
    """Of the hardware threads of each core, the first that is among cpus (ascending)."""
    first: dict[str, int] = {}
    for cpu in cpus:
        first.setdefault(_siblings(cpu_folder, cpu), cpu)
    return list(first.values())


def _siblings(cpu_folder: Path, cpu: int) -> str:
    """The hardware threads that share a core, as the system lists them."""
    return text_of(cpu_folder / f"cpu{cpu}" / "topology" / "thread_siblings_list") or str(cpu)


def node_of_cpu(root: Path = Path("/")) -> dict[int, int]:
    """NUMA nodes; empty where the system names none, which is one node."""
    nodes = {}
    for folder in (root / "sys/devices/system/node").glob("node[0-9]*"):
        for cpu in cpu_list(text_of(folder / "cpulist")):
            nodes[cpu] = int(folder.name.removeprefix("node"))
    return nodes


def _quota_of(folder: Path) -> float | None:
    """Of version 2, or else of version 1."""
    limit, _, period = text_of(folder / "cpu.max").partition(" ")
    if not limit:
        limit, period = text_of(folder / "cpu.cfs_quota_us"), text_of(folder / "cpu.cfs_period_us")
    has_limit = limit.isdigit() and period.isdigit() and int(period) > 0
    return int(limit) / int(period) if has_limit else None
