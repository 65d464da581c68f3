"""Memory modules without root: what udev wrote down of SMBIOS at boot, or what the EDAC drivers show."""

from __future__ import annotations

import re
from pathlib import Path

from ktdesk_engine.system_files import text_of
from ktdesk_wizard.probe.fact import Fact, derived, reported, unknown
from ktdesk_wizard.probe.machine_facts import DimmFacts

UDEV = "run/udev/data/+dmi:id"
EDAC = "sys/devices/system/edac/mc"
CHANNEL_BYTES = 8
"""A transfer of one channel; DDR5 halves it into two sub-channels of four, which come together."""
MAX_MODULES_ONE_A_CHANNEL = 2

SOCKET = re.compile(r"(?:\bP|CPU|NODE|Proc|Socket)\s?_?(\d+)", re.IGNORECASE)
CONTROLLER = re.compile(r"Controller\s?(\d+)", re.IGNORECASE)
CHANNELS = (re.compile(r"Channel[ _]?([A-Z0-9])", re.IGNORECASE), re.compile(r"DIMM[ _]?([A-Z])", re.IGNORECASE))
"""Makers name slots as they like: P0 CHANNEL A, Controller0-ChannelA-DIMM0, CPU1_DIMM_B1."""


def read_dimms(root: Path) -> Fact[tuple[DimmFacts, ...]]:
    properties = dict(re.findall(r"^E:(MEMORY_DEVICE_\w+)=(.*)$", text_of(root / UDEV), re.MULTILINE))
    indices = sorted({int(key.split("_")[2]) for key in properties})
    if indices:
        return reported(tuple(_of_udev(properties, index) for index in indices), f"/{UDEV}")
    modules = [_of_edac(folder) for folder in sorted((root / EDAC).glob("mc*/dimm*"))]
    if modules:
        return reported(tuple(modules), f"/{EDAC}, which knows no speed")
    return unknown(f"/{UDEV} tells of none, and no EDAC driver is loaded; `sudo dmidecode -t memory` would")


def num_channels(dimms: Fact[tuple[DimmFacts, ...]]) -> Fact[int]:
    """That have a module."""
    if dimms.value is None:
        return unknown("the modules are not known")
    modules = [dimm for dimm in dimms.value if dimm.num_bytes]
    channels = {_channel(dimm.locator) for dimm in modules}
    if modules and None not in channels:
        return derived(len(channels), "the names of the slots")
    if 0 < len(modules) <= MAX_MODULES_ONE_A_CHANNEL:
        return derived(len(modules), "few modules: a channel each")
    return unknown("the names of the slots do not say which channel they are of")


def nominal_bytes_s(dimms: Fact[tuple[DimmFacts, ...]], channels: Fact[int]) -> Fact[float]:
    """The slowest module sets the pace."""
    speeds = [dimm.mts or dimm.rated_mts for dimm in dimms.value or () if dimm.num_bytes]
    if not channels.value or not speeds or not all(speeds):
        return unknown("channels or speed of the modules are not known")
    return derived(
        channels.value * CHANNEL_BYTES * min(speeds) * 1e6, f"{channels.value} channels of 8 bytes, {min(speeds)} MT/s"
    )


def _channel(locator: str) -> tuple[str, ...] | None:
    channel = next((found.group(1).upper() for pattern in CHANNELS if (found := pattern.search(locator))), None)
    if channel is None:
        return None
    around = [found.group(1) if (found := pattern.search(locator)) else "" for pattern in (SOCKET, CONTROLLER)]
    return (*around, channel)


def _of_udev(properties: dict[str, str], index: int) -> DimmFacts:
    def value(name: str) -> str:
        return properties.get(f"MEMORY_DEVICE_{index}_{name}", "").strip()

    def number(name: str) -> int:
        return int(value(name)) if value(name).isdigit() else 0

    return DimmFacts(
        locator=" ".join(filter(None, (value("BANK_LOCATOR"), value("LOCATOR")))),
        num_bytes=0 if value("PRESENT") == "0" else number("SIZE"),
        type=value("TYPE"),
        mts=number("CONFIGURED_SPEED_MTS"),
        rated_mts=number("SPEED_MTS"),
    )


def _of_edac(folder: Path) -> DimmFacts:
    size = text_of(folder / "size")
    label = text_of(folder / "dimm_label") or text_of(folder / "dimm_location")
    return DimmFacts(label, int(size) * 2**20 if size.isdigit() else 0, text_of(folder / "dimm_mem_type"), 0, 0)
