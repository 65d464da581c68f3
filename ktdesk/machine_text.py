"""The facts about a machine for people, 80 columns wide. What is unknown says so, and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple, TypeVar

from ktdesk.amounts import bytes_text, speed_text
from ktdesk.terminal import on_one_line
from ktdesk_wizard.probe.fact import Fact
from ktdesk_wizard.probe.machine_facts import (
    AmxFacts,
    CpuFacts,
    DimmFacts,
    DiskFacts,
    GpuFacts,
    GpusFacts,
    LinkRate,
    MachineFacts,
    MemoryFacts,
    NodeFacts,
    NodeRead,
    NumaFacts,
    SurroundingsFacts,
    ThreadRead,
)
from ktdesk_wizard.probe.memory import NO_LIMIT

T = TypeVar("T")
LABEL_WIDTH = 20


class Line(NamedTuple):
    label: str
    fact: Fact[str]


def as_text(facts: MachineFacts, *, with_sources: bool) -> str:
    """A paragraph each for what belongs together."""
    parts = (
        _surroundings(facts.surroundings),
        _cpu(facts.cpu),
        _numa(facts.numa),
        _memory(facts.memory),
        _gpus(facts.gpus),
        _disk(facts.disk),
    )
    return "\n\n".join("\n".join(_shown(line, with_sources) for line in part) for part in parts)


def _shown(line: Line, with_source: bool) -> str:
    fact = line.fact
    value = f"unknown ({fact.source})" if fact.value is None else fact.value
    source = f"  [{fact.confidence}: {fact.source}]" if with_source and fact.value is not None else ""
    return f"{line.label:<{LABEL_WIDTH}}{on_one_line(value + source)}"


def _line(label: str, fact: Fact[T], shown: Callable[[T], str] = str) -> Line:
    text = None if fact.value is None else shown(fact.value)
    return Line(label, Fact(text, fact.source, fact.confidence))


def _yes(value: bool) -> str:
    return "yes" if value else "no"


def _surroundings(facts: SurroundingsFacts) -> Iterator[Line]:
    yield _line("kernel", facts.kernel)
    yield _line("virtual machine", facts.virtual_machine)
    yield _line("container", facts.container)
    if facts.wsl.value:
        yield _line("WSL", facts.wsl, _yes)


def _cpu(facts: CpuFacts) -> Iterator[Line]:
    yield _line("processor", facts.name)
    yield _line("packages", facts.num_packages)
    yield _line("cores", facts.num_cores, lambda count: f"{count} that ktdesk may use")
    yield _line("hardware threads", facts.num_hardware_threads)
    yield _line("kinds of cores", facts.core_kinds)
    if facts.quota_cores.is_known:
        yield _line("quota", facts.quota_cores, lambda cores: f"{cores:g} cores' worth of time")
    yield _line("threads", facts.num_threads)
    yield _line("governor", facts.governor)
    yield _line("clock", facts.max_hz, lambda hz: f"{hz / 1e9:.2f} GHz")
    yield _line("third-level cache", facts.l3_bytes, bytes_text)
    yield _line("instruction set", facts.isa)
    if facts.busy_cores.value:
        yield _line("while measured", facts.busy_cores, lambda cores: f"others used {cores:.1f} cores")
    if facts.turns_share.value is not None and facts.turns_share.value < 1:
        yield _line("turns measured", facts.turns_share, lambda share: f"{share:.0%} of the usual ones")
    for label, prefix in (("AVX2", ""), ("AVX-512", "avx512"), ("AMX", "amx")):
        yield _line(f"{label} flags", facts.flags, partial(_flags, prefix))
    yield from _amx(facts.amx)


def _flags(prefix: str, flags: tuple[str, ...]) -> str:
    """Those of one family; without a prefix, those of none of the wider ones."""
    families = ("avx512", "amx")
    chosen = [flag for flag in flags if (flag.startswith(prefix) if prefix else not flag.startswith(families))]
    return " ".join(chosen) or "none"


def _amx(facts: AmxFacts) -> Iterator[Line]:
    yield _line("AMX flag", facts.flag, _reason(facts.flag))
    yield _line("AMX kernel", facts.kernel, _reason(facts.kernel))
    yield _line("AMX permission", facts.permission, _reason(facts.permission))
    yield _line("AMX measured", facts.measured, lambda ops: f"{ops / 1e12:.1f} TOPS")


def _reason(fact: Fact[bool]) -> Callable[[bool], str]:
    """Of a light that is off, why."""
    return lambda value: "yes" if value else f"no: {fact.source}"


def _numa(facts: NumaFacts) -> Iterator[Line]:
    for node in facts.nodes:
        yield _line(f"node {node.id}", node.memory_bytes, partial(_node, node))
    yield _line("clustering", facts.clustering)
    if len(facts.nodes) > 1:
        yield _line("NUMA balancing", facts.balancing, _yes)
        yield _line("node reads", facts.reads, _by_nodes)


def _by_threads(reads: tuple[ThreadRead, ...]) -> str:
    return ", ".join(f"{read.num_threads}: {speed_text(read.bytes_s)}" for read in reads)


def _by_nodes(reads: tuple[NodeRead, ...]) -> str:
    return ", ".join(f"{read.reader} of {read.memory}: {speed_text(read.bytes_s)}" for read in reads)


def _copies(rate: LinkRate) -> str:
    return f"{speed_text(rate.up_bytes_s)} to it, {speed_text(rate.down_bytes_s)} from it ({rate.name})"


def _node(node: NodeFacts, memory_bytes: int) -> str:
    cores = f"{node.num_cores} cores" if node.num_cores else "memory alone"
    return f"{cores}, {bytes_text(memory_bytes)}, distances {' '.join(map(str, node.distances))}"


def _memory(facts: MemoryFacts) -> Iterator[Line]:
    yield _line("memory", facts.total_bytes, bytes_text)
    yield _line("available", facts.available_bytes, bytes_text)
    if facts.limit_bytes.is_known:
        yield _line("limit", facts.limit_bytes, lambda limit: f"{bytes_text(limit)} ({facts.limit_bytes.source})")
    yield _line("modules", facts.dimms, _modules)
    yield _line("channels", facts.num_channels)
    yield _line("nominal bandwidth", facts.nominal_bytes_s, speed_text)
    yield _line("read bandwidth", facts.read_bytes_s, speed_text)
    if facts.reads_by_threads.value:
        yield _line("  by threads", facts.reads_by_threads, _by_threads)
    yield _line("swap", facts.swap_bytes, bytes_text)
    yield _line("huge pages", facts.huge_pages)
    if facts.reserved_huge_bytes.value:
        yield _line("reserved pages", facts.reserved_huge_bytes, bytes_text)
    yield _line("may be locked", facts.lockable_bytes, lambda size: "all" if size >= NO_LIMIT else bytes_text(size))
    yield _line("memory pressure", facts.pressure, lambda percent: f"{percent:g} % of the last minute")


def _modules(dimms: tuple[DimmFacts, ...]) -> str:
    """Such as 4 x 32.0 GiB DDR5-4800, 4 slots empty."""
    counts = Counter((d.num_bytes, d.type, d.mts or d.rated_mts) for d in dimms if d.num_bytes)
    shown = [
        f"{count} x {bytes_text(size)} {kind}{f'-{mts}' if mts else ''}" for (size, kind, mts), count in counts.items()
    ]
    num_empty = sum(not dimm.num_bytes for dimm in dimms)
    return ", ".join([*shown, *([f"{num_empty} slots empty"] if num_empty else [])])


def _gpus(facts: GpusFacts) -> Iterator[Line]:
    if not facts.gpus:
        yield Line("graphics cards", Fact("none found", "NVML and /sys/bus/pci", "reported"))
    if not facts.driver.is_known:
        yield _line("driver", facts.driver)
    for gpu in facts.gpus:
        yield from _gpu(gpu)
    if len(facts.gpus) > 1 or facts.visible.value == ():
        yield _line("engine's card", facts.visible, _first)
    if facts.gpus:
        yield _line("copies", facts.copies, _copies)
    if facts.note.is_known:
        yield _line("other cards", facts.note)


def _first(visible: tuple[int, ...]) -> str:
    return f"card {visible[0]}" if visible else "none is visible"


def _gpu(facts: GpuFacts) -> Iterator[Line]:
    yield _line(f"card {facts.index}", facts.name)
    yield _line("  memory", facts.total_bytes, bytes_text)
    yield _line("  free", facts.free_bytes, bytes_text)
    yield _line("  bandwidth", facts.bytes_s, speed_text)
    yield _line("  capability", facts.compute_capability)
    yield _line("  node", facts.node)
    link = facts.link
    yield _line("  PCIe", link.max_bytes_s, lambda speed: f"{speed_text(speed)} ({link.max_bytes_s.source})")


def _disk(facts: DiskFacts) -> Iterator[Line]:
    yield Line("models in", Fact(facts.folder, "given", "given"))
    yield _line("file system", facts.filesystem)
    yield _line("free", facts.free_bytes, bytes_text)
    yield _line("writable", facts.is_writable, _yes)
    yield _line("read speed", facts.read_bytes_s, speed_text)
