"""Which cards CUDA_VISIBLE_DEVICES leaves, and how they are counted: the engine uses the first. Needs no driver.

CUDA reads numbers or UUIDs, with commas between them, as far as each names a card; of a UUID as much is enough as tells
it from others. Numbers are those of `nvidia-smi`, by the bus: CUDA would take the fastest card as the first, which only
it can tell, so CUDA_DEVICE_ORDER is set where the environment does not.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence

VISIBLE = "CUDA_VISIBLE_DEVICES"
ORDER = "CUDA_DEVICE_ORDER"
BY_BUS = "PCI_BUS_ID"


def count_by_bus() -> None:
    """Call it before CUDA starts, which looks once. Who asks for another order gets it."""
    os.environ.setdefault(ORDER, BY_BUS)


def is_counted_by_bus(environment: Mapping[str, str]) -> bool:
    """Once the engine has called `count_by_bus`."""
    return environment.get(ORDER, BY_BUS) == BY_BUS


def hides_all(visible: str) -> bool:
    """Whether it names no card, on any machine: empty, or beginning with a number below 0."""
    first = visible.partition(",")[0].strip()
    return not first or re.match(r"-\d", first) is not None


def visible_cards(visible: str | None, uuids: Sequence[str | None]) -> tuple[int, ...]:
    """By the bus, those that CUDA sees, in its order. visible: the variable; None: it is not set. uuids: of all cards;
    None: not told. Slices of a card (MIG) name none here."""
    if visible is None:
        return tuple(range(len(uuids)))
    found: list[int] = []
    for entry in visible.split(","):
        index = _named(entry.strip(), uuids)
        if index is None:
            break
        if index in found:
            return ()  # CUDA takes a list that names a card twice for a mistake
        found.append(index)
    return tuple(found)


def _named(entry: str, uuids: Sequence[str | None]) -> int | None:
    """The card; None where it names none, or several."""
    number = re.match(r"\d+", entry)  # what follows the digits is not read
    if number is not None:
        index = int(number.group())
        return index if index < len(uuids) else None
    if not entry.startswith("GPU-"):
        return None
    named = [index for index, uuid in enumerate(uuids) if uuid is not None and uuid.startswith(entry)]
    return named[0] if len(named) == 1 else None
