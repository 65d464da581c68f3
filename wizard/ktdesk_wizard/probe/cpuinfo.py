"""/proc/cpuinfo, read once: name and flags of the first processor."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ktdesk_engine.system_files import text_of

SOURCE = "/proc/cpuinfo"


@dataclass(frozen=True)
class CpuInfo:
    name: str | None
    vendor: str
    flags: frozenset[str]
    """As Linux spells them: amx_int8, avx512_vnni, but avx512f."""
    mhz: float | None
    """Of the moment."""


def read_cpuinfo(root: Path) -> CpuInfo:
    first, _, _ = text_of(root / "proc/cpuinfo").partition("\n\n")
    values = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in first.splitlines())}
    mhz = values.get("cpu MHz", "")
    return CpuInfo(
        name=values.get("model name") or None,
        vendor=values.get("vendor_id", ""),
        flags=frozenset(values.get("flags", values.get("Features", "")).split()),
        mhz=float(mhz) if mhz.replace(".", "", 1).isdigit() else None,
    )
