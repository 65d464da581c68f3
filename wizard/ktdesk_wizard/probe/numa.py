"""NUMA nodes, and into how many of them the system divides a package (Intel's SNC, AMD's NPS)."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path

from ktdesk_engine.machine import usable_cores
from ktdesk_engine.system_files import cpu_list, text_of
from ktdesk_wizard.probe.cpuinfo import CpuInfo
from ktdesk_wizard.probe.fact import Fact, derived, reported, reported_or_unknown, unknown
from ktdesk_wizard.probe.machine_facts import NodeFacts, NumaFacts
from ktdesk_wizard.probe.memory import read_meminfo

NODE_FOLDER = "sys/devices/system/node"
NOT_MEASURED = "not measured here: `ktdesk probe --measure`, where there are several nodes with processors"
MB = 10**6
"""HMAT's unit of bandwidth, as Linux shows it."""


def read_numa(root: Path, info: CpuInfo, cpus: Sequence[int]) -> NumaFacts:
    cores = Counter(core.node for core in usable_cores(root, cpus))
    folders = sorted((root / NODE_FOLDER).glob("node[0-9]*"), key=_id)
    balancing = text_of(root / "proc/sys/kernel/numa_balancing")
    return NumaFacts(
        nodes=tuple(_node(root, folder, cores[_id(folder)]) for folder in folders),
        clustering=_clustering(root, folders, info),
        balancing=reported_or_unknown(
            balancing not in ("0", "") if balancing else None,
            "/proc/sys/kernel/numa_balancing",
            "/proc/sys/kernel/numa_balancing is not there",
        ),
        reads=unknown(NOT_MEASURED),
    )


def _id(folder: Path) -> int:
    return int(folder.name.removeprefix("node"))


def _node(root: Path, folder: Path, num_cores: int) -> NodeFacts:
    source = f"/{folder.relative_to(root)}/meminfo"
    memory = read_meminfo(text_of(folder / "meminfo"))
    why = f"{source} cannot be read"
    return NodeFacts(
        id=_id(folder),
        num_cores=num_cores,
        memory_bytes=reported_or_unknown(memory.get("MemTotal"), source, why),
        free_bytes=_free(memory, source, why),
        distances=tuple(int(part) for part in text_of(folder / "distance").split() if part.isdigit()),
        read_bytes_s=_nominal(root, folder),
    )


def _free(memory: dict[str, int], source: str, why: str) -> Fact[int]:
    """Free pages and those of files that were not looked at lately."""
    if "MemFree" not in memory:
        return unknown(why)
    return derived(memory["MemFree"] + memory.get("Inactive(file)", 0), f"{source} MemFree and Inactive(file)")


def _nominal(root: Path, folder: Path) -> Fact[float]:
    path = folder / "access0" / "initiators" / "read_bandwidth"
    source = f"/{path.relative_to(root)}"
    megabytes = text_of(path)
    if not megabytes.isdigit() or not int(megabytes):
        return unknown(f"{source} is not there: the firmware has no HMAT")
    return reported(float(megabytes) * MB, f"{source} (of the firmware)")


def _clustering(root: Path, folders: Sequence[Path], info: CpuInfo) -> Fact[str]:
    source = f"/{NODE_FOLDER} and the packages of the nodes' processors"
    nodes: dict[str, set[int]] = defaultdict(set)
    for folder in folders:
        for cpu in cpu_list(text_of(folder / "cpulist")):
            package = text_of(root / f"sys/devices/system/cpu/cpu{cpu}/topology/physical_package_id")
            if package:
                nodes[package].add(_id(folder))
    if not nodes:
        return unknown(f"{source} cannot be read")
    most = max(len(of_package) for of_package in nodes.values())
    name = "SNC" if info.vendor == "GenuineIntel" else "NPS"
    return derived("none" if most == 1 else f"{name}{most}", source)
