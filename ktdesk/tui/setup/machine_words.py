"""The machine in few lines: what it has, the four lights of AMX, how fast its memory is, and what would help."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from textual.content import Content

from ktdesk.amounts import bytes_text, speed_text
from ktdesk.tui.markdown.harmless import harmless
from ktdesk.tui.setup.own_words import own_words

if TYPE_CHECKING:
    from ktdesk.tui.setup.machine import Measuring
    from ktdesk_wizard.doctor.diagnosis import Finding
    from ktdesk_wizard.probe.fact import Fact
    from ktdesk_wizard.probe.machine_facts import AmxFacts, CpuFacts, GpuFacts, MachineFacts, MemoryFacts, NodeFacts

LABEL_WIDTH, FIX_INDENT = 12, 6
BAR_WIDTH = 24
BUSY_CORES = 0.3
"""Of others: from here on what was measured may be much too low."""
SEVERITY_STYLES = {"wrong": "$error bold", "slow": "$warning bold", "note": "$primary"}


def machine_content(facts: MachineFacts, *, is_measuring: bool) -> Content:
    lines = [
        _line("Processor", _cpu(facts.cpu)),
        _line("AMX", lights(facts.cpu.amx)),
        _line("Memory", _memory(facts.memory)),
        _line("Bandwidth", _bandwidth(facts, is_measuring=is_measuring)),
        *_nodes(facts.numa.nodes),
        *_cards(facts.gpus.gpus),
        _line("Disk", f"{_amount(facts.disk.free_bytes)} free in {harmless(facts.disk.folder)}"),
    ]  # fmt: skip
    return Content("\n").join(lines)


def lights(amx: AmxFacts) -> Content:
    """Of each: on, off, or not known."""
    named = (("processor", amx.flag), ("system", amx.kernel), ("permission", amx.permission))
    parts = [_light(bool(fact.value) if fact.is_known else None, name) for name, fact in named]
    measured = amx.measured.value
    words = "measured" if measured is None else f"{measured / 1e12:.1f} T a second"
    parts.append(_light(None if measured is None else True, words))
    return Content("   ").join(parts)


def _light(is_on: bool | None, words: str) -> Content:
    sign, style = {True: ("●", "$success"), False: ("○", "$error"), None: ("◌", "dim")}[is_on]
    return Content.assemble((sign, style), " ", (words, "" if is_on else "dim"))


def findings_content(findings: Sequence[Finding], width: int) -> Content:
    """What would help: a line, what to do below it, indented."""
    if not findings:
        return Content.styled("Nothing is wrong or slow here, as far as can be seen.", "$success")
    lines = []
    for finding in findings:
        head = Content.assemble((f"{finding.severity:<6}", SEVERITY_STYLES[finding.severity]), harmless(finding.title))
        fix = textwrap.wrap(harmless(own_words(finding.fix)), width - FIX_INDENT, break_on_hyphens=False)
        lines += [head, *(Content.styled(f"{'':<{FIX_INDENT}}{line}", "dim") for line in fix)]
    return Content("\n").join(lines)


def _line(label: str, value: Content | str) -> Content:
    return Content.assemble((f"{label:<{LABEL_WIDTH}}", "$foreground 75%"), value)


def _cpu(cpu: CpuFacts) -> str:
    name = harmless(cpu.name.value or "it does not tell its name")
    return f"{name}, {cpu.num_cores.value or '?'} cores, {cpu.num_threads.value} threads used, {cpu.isa.value}"


def _memory(memory: MemoryFacts) -> str:
    dimms = [dimm for dimm in memory.dimms.value or () if dimm.num_bytes]
    modules = f"; {len(dimms)} modules in {memory.num_channels.value} channels" if dimms else ""
    return f"{_amount(memory.total_bytes)}, {_amount(memory.available_bytes)} available{modules}"


def _bandwidth(facts: MachineFacts, *, is_measuring: bool) -> Content:
    """As a bar where both what it gives and what it should give are known."""
    memory = facts.memory
    read, nominal = memory.read_bytes_s.value, memory.nominal_bytes_s.value
    if read is None:
        return _not_measured(nominal, is_measuring=is_measuring)
    words = f"{speed_text(read)} read, {memory.read_bytes_s.confidence}"
    busy = facts.cpu.busy_cores.value
    if busy is not None and busy > BUSY_CORES:
        words += f" while others used {busy:.1f} cores: measure again"
    if nominal is None:
        return Content(words)
    filled = round(min(read / nominal, 1.0) * BAR_WIDTH)
    return Content.assemble(
        ("█" * filled, "$primary"), ("░" * (BAR_WIDTH - filled), "dim"), f" {words}, of {speed_text(nominal)}"
    )


def _not_measured(nominal: float | None, *, is_measuring: bool) -> Content:
    if is_measuring:
        return Content.styled("is measured now", "$warning")
    if nominal is None:
        return Content.styled("not measured: speeds are unknown", "$warning")
    return Content.styled(f"not measured: speeds are reckoned from {speed_text(nominal)} of its modules", "$warning")


def measuring_words(measuring: Measuring) -> str:
    """What is measured just now, and for how long already."""
    return f"The machine is measured: {measuring.stage}, {measuring.share:.0%} in {measuring.seconds:.0f} s"


def _nodes(nodes: Sequence[NodeFacts]) -> Iterator[Content]:
    """Of a machine that has several."""
    for node in nodes if len(nodes) > 1 else ():
        yield _line(f"Node {node.id}", f"{node.num_cores} cores, {_amount(node.memory_bytes)}")


def _cards(gpus: Sequence[GpuFacts]) -> Iterator[Content]:
    if not gpus:
        yield _line("Cards", "none found")
    for gpu in gpus:
        link = gpu.link.max_bytes_s
        pcie = "" if link.value is None else f", PCIe {speed_text(link.value)}"
        name = harmless(gpu.name.value or "unknown")
        yield _line(f"Card {gpu.index}", f"{name}, {_amount(gpu.free_bytes)} of {_amount(gpu.total_bytes)} free{pcie}")


def _amount(fact: Fact[int]) -> str:
    return "unknown" if fact.value is None else bytes_text(fact.value)
