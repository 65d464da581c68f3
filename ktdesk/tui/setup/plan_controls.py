"""What the controls of a plan can be set to."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from ktdesk.amounts import bytes_text
from ktdesk.tui.widgets.slider import Stop

if TYPE_CHECKING:
    from ktdesk.what_if import WhatIf
    from ktdesk_wizard.plan.wishes import Wishes
    from ktdesk_wizard.probe.fact import Fact

SHARES = (0.125, 0.25, 0.375, 0.5, 0.625, 0.75, 0.875, 1.0)
"""Of the memory of the machine, that may be set as its limit."""
SLIDERS = {
    "context": "Context",
    "quantization": "Quantization",
    "max_memory_bytes": "Memory cap",
    "cache_type": "Cache",
    "compute": "Compute",
    "devices": "Devices",
    "max_gpu_bytes": "Card's cap",
}
"""By the wish that each turns."""
OF_CARDS = ("devices", "max_gpu_bytes")


def controls(what_if: WhatIf, wishes: Wishes, quantization: str | None) -> Iterator[tuple[str, Sequence[Stop], object]]:
    """Of each: what it can be, and what it is."""
    from ktdesk_engine.config import CACHE_TYPES, COMPUTES
    from ktdesk_wizard.plan.wishes import DEVICES

    contexts = sorted({*what_if.contexts, *(() if wishes.context is None else (wishes.context,))})
    yield "context", (Stop(None, "as fits"), *(Stop(each, f"{each:,} tokens") for each in contexts)), wishes.context
    own = [] if not what_if.model.is_estimate else [Stop(None, "the best that fits")]
    named = [Stop(each, _quantization_text(what_if, each)) for each in what_if.quantizations]
    default = None if own else what_if.model.quantization
    yield "quantization", (*own, *named), default if quantization is None else quantization
    memory = what_if.facts.memory
    yield "max_memory_bytes", _caps(memory.total_bytes, wishes.max_memory_bytes), wishes.max_memory_bytes
    yield "cache_type", (Stop(None, "as usual"), *(Stop(each, each) for each in CACHE_TYPES)), wishes.cache_type
    yield "compute", [Stop(each, each) for each in COMPUTES], wishes.compute
    yield "devices", [Stop(each, each) for each in DEVICES], wishes.devices
    gpus = what_if.facts.gpus.gpus
    largest = max(gpus, key=lambda gpu: gpu.total_bytes.value or 0).total_bytes if gpus else memory.total_bytes
    yield "max_gpu_bytes", _caps(largest, wishes.max_gpu_bytes), wishes.max_gpu_bytes


def _quantization_text(what_if: WhatIf, name: str) -> str:
    size = next((each for each in what_if.offered if each.quantization == name), None)
    if size is not None:
        return f"{name}, {bytes_text(size.num_bytes)}" if size.num_bytes else name
    is_other_file = not what_if.model.is_estimate and name != what_if.model.quantization
    return f"{name} (another file)" if is_other_file else name


def _caps(total: Fact[int], now: int | None) -> tuple[Stop, ...]:
    sizes = {round((total.value or 0) * share) for share in SHARES} | ({now} if now is not None else set())
    return (Stop(None, "what is free"), *(Stop(size, bytes_text(size)) for size in sorted(sizes) if size > 0))
