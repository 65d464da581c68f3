"""What graphics cards do at a moment: asked of NVIDIA's library, by the reader that the probe has."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ktdesk_wizard.probe.nvml import NoNvmlError, Nvml, load_nvml

TX, RX = 0, 1
"""Of NVML: what of PCIe is counted."""
KILOBYTE = 1000


@dataclass(frozen=True)
class CardMoment:
    """None: this card, driver or system does not say."""

    index: int
    busy_percent: float | None
    """Of the last moments, that some kernel ran."""
    used_bytes: int | None
    total_bytes: int | None
    pcie_bytes_s: float | None
    """Both ways together."""


class CardWatcher:
    """Opens the library once. Each look asks all cards and takes up to 40 ms a card, so not for an event loop."""

    def __init__(self, load: Callable[[], Nvml] = load_nvml) -> None:
        try:
            self._nvml: Nvml | None = load()
        except NoNvmlError:
            self._nvml = None

    def look(self) -> tuple[CardMoment, ...]:
        """Nothing where there is no card, or no library to ask."""
        return () if self._nvml is None else tuple(self._cards(self._nvml))

    def close(self) -> None:
        if self._nvml is not None:
            self._nvml.close()
            self._nvml = None

    def _cards(self, nvml: Nvml) -> Iterator[CardMoment]:
        for index in range(nvml.ask("DeviceGetCount") or 0):
            card = nvml.ask("DeviceGetHandleByIndex", index)
            if card is None:
                continue
            busy, memory = nvml.ask("DeviceGetUtilizationRates", card), nvml.ask("DeviceGetMemoryInfo", card)
            ways = [nvml.ask("DeviceGetPcieThroughput", card, way) for way in (TX, RX)]
            known = [way for way in ways if way is not None]
            yield CardMoment(
                index,
                None if busy is None else float(busy.gpu),
                None if memory is None else int(memory.total - memory.free),
                None if memory is None else int(memory.total),
                float(sum(known) * KILOBYTE) if known else None,
            )
