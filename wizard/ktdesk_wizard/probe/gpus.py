"""Graphics cards: NVML says most, sysfs where a card sits and how it is connected."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from ktdesk_engine.system_files import text_of
from ktdesk_wizard.probe.fact import Fact, derived, reported, reported_or_unknown, unknown
from ktdesk_wizard.probe.machine_facts import GpuFacts, GpusFacts, LinkFacts
from ktdesk_wizard.probe.nvml import NoNvmlError, Nvml
from ktdesk_wizard.probe.visible import read_visible

NOT_MEASURED = "not measured: `ktdesk probe --measure`, where there are a card and torch"
PCI = "sys/bus/pci/devices"
NVIDIA = "0x10de"
DISPLAY_CLASSES = ("0x0300", "0x0302", "0x0380")
LANE_BYTES_S = {1: 0.25e9, 2: 0.5e9, 3: 0.985e9, 4: 1.969e9, 5: 3.938e9, 6: 7.563e9}
"""A lane, one way: 2.5, 5, 8, 16, 32, 64 GT/s as coded on the wire."""
GENERATIONS = {"2.5": 1, "5.0": 2, "8.0": 3, "16.0": 4, "32.0": 5, "64.0": 6}
SHARED = "NVML knows no memory of its own for it: it shares the machine's"
OF_A_SLICE = "a slice (MIG) has a part of the card's, which NVML does not tell"
NOT_SUPPORTED = "NVML does not support it for this card"


Ask = Callable[..., Any]
"""A question about one card, by NVML's name for it; None is the answer to what is not supported."""


def read_gpus(
    root: Path, nvml: Nvml | NoNvmlError, memory: tuple[Fact[int], Fact[int]], environment: Mapping[str, str]
) -> GpusFacts:
    """memory: the machine's, all and free, which is that of cards that have none of their own."""
    seen = list(_display_devices(root))
    others = [f"{vendor} at {bus_id}" for bus_id, vendor in seen if vendor != NVIDIA]
    note: Fact[str] = unknown("nothing else was seen")
    if others:
        note = reported(f"of other makers, not asked: {', '.join(others)}", f"/{PCI}/*/class")
    if isinstance(nvml, NoNvmlError):
        gpus = tuple(_silent(root, i, bus_id, str(nvml)) for i, bus_id in enumerate(_nvidia(seen)))
        return GpusFacts(unknown(str(nvml)), gpus, unknown(str(nvml)), note, unknown(NOT_MEASURED))
    count = nvml.ask("DeviceGetCount") or 0
    visible = read_visible(nvml, count, environment)
    first = next(iter(visible.indices.value or ()), None)
    parts = [visible.slice if index == first else None for index in range(count)]
    gpus = tuple(_gpu(root, nvml, index, memory, part) for index, part in enumerate(parts))
    driver = reported_or_unknown(nvml.ask("SystemGetDriverVersion"), "NVML SystemGetDriverVersion", NOT_SUPPORTED)
    return GpusFacts(driver, gpus, visible.indices, note, unknown(NOT_MEASURED))


def _display_devices(root: Path) -> Iterator[tuple[str, str]]:
    """(bus id, vendor)"""
    for folder in sorted((root / PCI).glob("*")):
        if text_of(folder / "class")[:6] in DISPLAY_CLASSES:
            yield folder.name, text_of(folder / "vendor")


def _nvidia(seen: list[tuple[str, str]]) -> list[str]:
    return [bus_id for bus_id, vendor in seen if vendor == NVIDIA]


def _silent(root: Path, index: int, bus_id: str, why: str) -> GpuFacts:
    """A card that is there, but cannot be asked."""
    information = f"proc/driver/nvidia/gpus/{bus_id}/information"
    model = re.search(r"^Model:\s*(.+)$", text_of(root / information), re.MULTILINE)
    return GpuFacts(
        index=index,
        name=reported_or_unknown(model.group(1) if model else None, f"/{information}", why),
        bus_id=reported(bus_id, f"/{PCI}"),
        total_bytes=unknown(why),
        free_bytes=unknown(why),
        is_unified=unknown(why),
        bytes_s=unknown(why),
        compute_capability=unknown(why),
        node=_node(root, bus_id),
        link=_link(root, bus_id, lambda name: None),
    )


def _gpu(root: Path, nvml: Nvml, index: int, memory: tuple[Fact[int], Fact[int]], part: Any | None = None) -> GpuFacts:
    """part: NVML's handle of the slice that is used instead of the whole; its memory alone counts then."""
    handle = nvml.ask("DeviceGetHandleByIndex", index)

    def ask(name: str, *arguments: Any) -> Any | None:
        return None if handle is None else nvml.ask(f"DeviceGet{name}", handle, *arguments)

    pci = ask("PciInfo")
    bus_id = None if pci is None else _sysfs_bus_id(pci.busId)
    own = _own_memory(nvml, ask if part is None else lambda name, *more: nvml.ask(f"DeviceGet{name}", part, *more))
    capability = ask("CudaComputeCapability")
    return GpuFacts(
        index=index,
        name=reported_or_unknown(_name(nvml, handle, part), "NVML Name", NOT_SUPPORTED),
        bus_id=reported_or_unknown(bus_id, "NVML PciInfo", NOT_SUPPORTED),
        total_bytes=_shared(memory[0]) if own is None else reported(own[0], "NVML MemoryInfo"),
        free_bytes=_shared(memory[1]) if own is None else reported(own[1], "NVML MemoryInfo"),
        is_unified=derived(own is None, SHARED if own is None else "NVML MemoryInfo"),
        bytes_s=unknown(OF_A_SLICE)
        if part is not None
        else _bandwidth(ask("MaxClockInfo", nvml.constant("NVML_CLOCK_MEM")), ask("MemoryBusWidth")),
        compute_capability=reported_or_unknown(
            None if capability is None else ".".join(map(str, capability)), "NVML CudaComputeCapability", NOT_SUPPORTED
        ),
        node=unknown("its place is not known") if bus_id is None else _node(root, bus_id),
        link=_link(root, bus_id or "", ask),
    )


def _own_memory(nvml: Nvml, ask: Ask) -> tuple[int, int] | None:
    """(total, free); None where the card has none of its own. The second version leaves out what the driver keeps."""
    version = nvml.constant("nvmlMemory_v2")
    memory = None if version is None else ask("MemoryInfo", version)
    memory = ask("MemoryInfo") if memory is None else memory
    return None if memory is None else (int(memory.total), int(memory.free))


def _shared(fact: Fact[int]) -> Fact[int]:
    return Fact(fact.value, SHARED, fact.confidence)


def _name(nvml: Nvml, handle: Any | None, part: Any | None) -> str | None:
    """Of the slice where one is used: NVML calls it after its card and its size."""
    one = handle if part is None else part
    answer = None if one is None else nvml.ask("DeviceGetName", one)
    return None if answer is None else str(answer)


def _sysfs_bus_id(nvml_bus_id: str | bytes) -> str:
    """00000000:01:00.0, with a domain of eight digits in capitals, as sysfs writes it."""
    text = nvml_bus_id.decode() if isinstance(nvml_bus_id, bytes) else nvml_bus_id
    domain, _, rest = text.lower().partition(":")
    return f"{domain[-4:]}:{rest}"


def _bandwidth(clock_mhz: int | None, bus_bits: int | None) -> Fact[float]:
    """Two transfers a clock."""
    if not clock_mhz or not bus_bits:
        return unknown("NVML tells no memory clock or width for this card")
    return derived(2 * clock_mhz * 1e6 * bus_bits / 8, f"NVML: 2 x {clock_mhz} MHz x {bus_bits} bits")


def _node(root: Path, bus_id: str) -> Fact[int]:
    path = f"{PCI}/{bus_id}/numa_node"
    text = text_of(root / path)
    if not text.lstrip("-").isdigit():
        return unknown(f"/{path} cannot be read")
    return unknown(f"/{path} is -1: the firmware does not say") if int(text) < 0 else reported(int(text), f"/{path}")


def _link(root: Path, bus_id: str, ask: Ask) -> LinkFacts:
    """From NVML, or else from sysfs."""
    generation = _either(ask("CurrPcieLinkGeneration"), root, bus_id, "current_link_speed")
    width = _either(ask("CurrPcieLinkWidth"), root, bus_id, "current_link_width")
    max_generation = _either(ask("MaxPcieLinkGeneration"), root, bus_id, "max_link_speed")
    max_width = _either(ask("MaxPcieLinkWidth"), root, bus_id, "max_link_width")
    return LinkFacts(generation, width, max_generation, max_width, _link_bytes_s(max_generation, max_width))


def _link_bytes_s(generation: Fact[int], width: Fact[int]) -> Fact[float]:
    lane = LANE_BYTES_S.get(generation.value or 0)
    if lane is None or not width.value:
        return unknown("generation or width of the link are not known")
    return derived(lane * width.value, f"generation {generation.value}, {width.value} lanes")


def _either(answer: Any | None, root: Path, bus_id: str, file: str) -> Fact[int]:
    if isinstance(answer, int) and answer > 0:
        return reported(answer, "NVML")
    path = f"{PCI}/{bus_id}/{file}"
    first = text_of(root / path).partition(" ")[0]
    value = GENERATIONS.get(first) if file.endswith("speed") else int(first) if first.isdigit() else None
    return reported_or_unknown(value or None, f"/{path}", f"/{path} does not say")
