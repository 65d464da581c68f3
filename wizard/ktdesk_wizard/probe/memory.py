"""Main memory: how much there is, how much of it this process may really take, and how fast it could be."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from ktdesk_engine.system_files import cgroup_folders, size_bytes, text_of
from ktdesk_wizard.probe.cpu import NOT_MEASURED
from ktdesk_wizard.probe.dimms import nominal_bytes_s, num_channels, read_dimms
from ktdesk_wizard.probe.fact import Fact, derived, reported, reported_or_unknown, unknown
from ktdesk_wizard.probe.machine_facts import MemoryFacts

MEMINFO = "/proc/meminfo"
HUGE_PAGES = "sys/kernel/mm/transparent_hugepage/enabled"
NO_LIMIT = 2**62
"""A cgroup of version 1 without a limit shows a number near 2^63."""


class Group(NamedTuple):
    """A cgroup with a limit."""

    name: str
    limit_bytes: int
    free_bytes: int
    """Until the limit, cached file pages not counted as used: they are dropped for whoever needs memory."""


def read_memory(root: Path) -> MemoryFacts:
    info = read_meminfo(text_of(root / "proc/meminfo"))
    groups = list(limited_groups(root))
    dimms = read_dimms(root)
    channels = num_channels(dimms)
    return MemoryFacts(
        total_bytes=_of_meminfo(info, "MemTotal"),
        available_bytes=_available(info, groups),
        limit_bytes=_limit(info, groups),
        swap_bytes=_of_meminfo(info, "SwapTotal"),
        swap_free_bytes=_of_meminfo(info, "SwapFree"),
        huge_pages=_huge_pages(root),
        reserved_huge_bytes=_reserved(root, info),
        lockable_bytes=_lockable(root),
        pressure=_pressure(root),
        dimms=dimms,
        num_channels=channels,
        nominal_bytes_s=nominal_bytes_s(dimms, channels),
        read_bytes_s=unknown(NOT_MEASURED),
        reads_by_threads=unknown(NOT_MEASURED),
    )


def read_meminfo(text: str) -> dict[str, int]:
    """Name -> bytes, or a number where the line has no unit. Lines of a node begin with `Node 0`."""
    found = re.findall(r"^(?:Node \d+ )?([\w()]+):\s+(\d+)( kB)?", text, re.MULTILINE)
    return {name: int(number) * (1024 if unit else 1) for name, number, unit in found}


def limited_groups(root: Path) -> Iterator[Group]:
    """The cgroups around this process that limit its memory, of version 2 or of version 1."""
    for folder in cgroup_folders(root, "memory"):
        for limit_file, used_file, prefix in (
            ("memory.max", "memory.current", ""),
            ("memory.high", "memory.current", ""),
            ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_"),
        ):
            limit = text_of(folder / limit_file)
            if limit.isdigit() and int(limit) < NO_LIMIT:
                used = text_of(folder / used_file)
                used_bytes = int(used) if used.isdigit() else 0
                cached = _cached_bytes(text_of(folder / "memory.stat"), prefix)
                name = f"/{(folder / limit_file).relative_to(root)}"
                yield Group(name, int(limit), max(0, int(limit) - max(0, used_bytes - cached)))


def _cached_bytes(stat: str, prefix: str) -> int:
    """Of what a group uses, what is dropped first."""
    values = {name: int(number) for name, number in re.findall(r"^(\w+) (\d+)$", stat, re.MULTILINE)}
    return values.get(f"{prefix}inactive_file", 0) + values.get("slab_reclaimable", 0)


def _of_meminfo(info: dict[str, int], name: str) -> Fact[int]:
    return reported_or_unknown(info.get(name), f"{MEMINFO} {name}", f"{MEMINFO} has no {name}")


def _narrowest(groups: list[Group]) -> Group | None:
    return min(groups, key=lambda group: group.free_bytes, default=None)


def _available(info: dict[str, int], groups: list[Group]) -> Fact[int]:
    system = _of_meminfo(info, "MemAvailable")
    group = _narrowest(groups)
    if group is None or (system.value is not None and system.value <= group.free_bytes):
        return system
    return derived(group.free_bytes, f"{group.name} less what the group uses and cannot drop")


def _limit(info: dict[str, int], groups: list[Group]) -> Fact[int]:
    group = min(groups, key=lambda group: group.limit_bytes, default=None)
    if group is None or group.limit_bytes >= info.get("MemTotal", NO_LIMIT):
        return unknown("no cgroup sets a limit")
    return reported(group.limit_bytes, group.name)


def _huge_pages(root: Path) -> Fact[str]:
    chosen = re.search(r"\[(\w+)\]", text_of(root / HUGE_PAGES))
    return reported_or_unknown(chosen.group(1) if chosen else None, f"/{HUGE_PAGES}", f"/{HUGE_PAGES} cannot be read")


def _reserved(root: Path, info: dict[str, int]) -> Fact[int]:
    """Of all sizes: /proc/meminfo counts the default one alone."""
    counts = {path: text_of(path / "nr_hugepages") for path in (root / "sys/kernel/mm/hugepages").glob("hugepages-*")}
    if counts:
        sizes = {path: path.name.removeprefix("hugepages-").removesuffix("kB") for path in counts}
        total = sum(int(count) * size_bytes(f"{sizes[path]}K") for path, count in counts.items() if count.isdigit())
        return reported(total, "/sys/kernel/mm/hugepages")
    if "HugePages_Total" not in info:
        return unknown(f"{MEMINFO} has no HugePages_Total")
    return reported(info["HugePages_Total"] * info.get("Hugepagesize", 0), f"{MEMINFO} HugePages_Total")


def _lockable(root: Path) -> Fact[int]:
    source = "/proc/self/limits"
    found = re.search(r"^Max locked memory\s+(\S+)", text_of(root / source[1:]), re.MULTILINE)
    if found is None:
        return unknown(f"{source} has no line for locked memory")
    return reported(NO_LIMIT if found.group(1) == "unlimited" else int(found.group(1)), source)


def _pressure(root: Path) -> Fact[float]:
    source = "/proc/pressure/memory"
    found = re.search(r"^some .*avg60=([\d.]+)", text_of(root / source[1:]), re.MULTILINE)
    return reported_or_unknown(float(found.group(1)) if found else None, source, f"{source} cannot be read")
