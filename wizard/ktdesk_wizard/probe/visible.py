"""Which cards CUDA sees, by what the environment says and NVML calls them: the engine uses the first."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ktdesk_engine.backends.cuda.visible import ORDER, VISIBLE, is_counted_by_bus, visible_cards
from ktdesk_wizard.probe.fact import Fact, derived, unknown
from ktdesk_wizard.probe.nvml import Nvml

SLICE = "MIG-"
"""How the UUID of a part of a card begins."""


@dataclass(frozen=True)
class Visible:
    indices: Fact[tuple[int, ...]]
    """As NVML counts, in CUDA's order."""
    slice: Any | None = None
    """NVML's handle of the part that is used instead of the whole of the first."""


def read_visible(nvml: Nvml, num_cards: int, environment: Mapping[str, str]) -> Visible:
    text = environment.get(VISIBLE)
    source = f"{VISIBLE} is not set" if text is None else f"{VISIBLE}={text}"
    first = "" if text is None else text.partition(",")[0].strip()
    if first.startswith(SLICE):
        index, part = _slice(nvml, first)
        return Visible(derived(() if index is None else (index,), source), part)
    if num_cards > 1 and not is_counted_by_bus(environment) and not first.startswith("GPU-"):
        return Visible(unknown(f"{ORDER}={environment[ORDER]}: only CUDA knows that order; name a card by its UUID"))
    uuids = [_uuid(nvml, index) for index in range(num_cards)]
    return Visible(derived(visible_cards(text, uuids), source))


def _uuid(nvml: Nvml, index: int) -> str | None:
    card = nvml.ask("DeviceGetHandleByIndex", index)
    return None if card is None else nvml.ask("DeviceGetUUID", card)


def _slice(nvml: Nvml, uuid: str) -> tuple[int | None, Any | None]:
    """The card, and its part. CUDA sees no more than one."""
    part = nvml.ask("DeviceGetHandleByUUID", uuid)
    card = None if part is None else nvml.ask("DeviceGetDeviceHandleFromMigDeviceHandle", part)
    return (None, None) if card is None else (nvml.ask("DeviceGetIndex", card), part)
