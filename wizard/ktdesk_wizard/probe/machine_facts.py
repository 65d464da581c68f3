"""All that the wizard knows of a machine. Bytes and bytes a second throughout.

A plan is made from these alone, so a plan for another machine needs only its facts (`facts_json`).
"""

from __future__ import annotations

from dataclasses import dataclass

from ktdesk_engine.benchmark.kernel_shares import KernelShare
from ktdesk_wizard.probe.fact import Fact


@dataclass(frozen=True)
class AmxFacts:
    """Four lights; tiles are used when the first three are on."""

    flag: Fact[bool]
    """The processor has tiles, and what unpacks to them."""
    kernel: Fact[bool]
    """The operating system saves tiles."""
    permission: Fact[bool]
    """This process may use them."""
    measured: Fact[float]
    """Operations a second on tiles, all cores."""


@dataclass(frozen=True)
class CpuFacts:
    name: Fact[str]
    num_packages: Fact[int]
    num_cores: Fact[int]
    """Physical ones that affinity and cpuset allow."""
    num_hardware_threads: Fact[int]
    """Of those."""
    quota_cores: Fact[float]
    """Cores' worth of time that the cgroup grants. Unknown: no limit."""
    num_threads: Fact[int]
    """That the engine takes of itself."""
    core_kinds: Fact[str]
    """Such as 8 performance, 16 efficiency."""
    max_hz: Fact[float]
    governor: Fact[str]
    l3_bytes: Fact[int]
    flags: Fact[tuple[str, ...]]
    """Of those that the kernels ask for, the ones that are there."""
    isa: Fact[str]
    """The widest instruction set that flags and operating system allow."""
    peak_ops_s: Fact[float]
    """Of products of bytes on vectors, all threads."""
    kernel_shares: Fact[tuple[KernelShare, ...]]
    """What the engine's kernels reach of that."""
    busy_cores: Fact[float]
    """That other processes and the hypervisor took while all this was measured."""
    turns_share: Fact[float]
    """Of the turns that are usual, those that there was time for in that."""
    amx: AmxFacts


@dataclass(frozen=True)
class NodeFacts:
    id: int
    num_cores: int
    """That this process may use. 0: memory alone."""
    memory_bytes: Fact[int]
    free_bytes: Fact[int]
    distances: tuple[int, ...]
    """To every node; 10 is itself."""
    read_bytes_s: Fact[float]
    """From the node's own cores."""


@dataclass(frozen=True)
class NodeRead:
    """Bandwidth from node to node."""

    reader: int
    """The node whose threads read."""
    memory: int
    """The node whose memory they read."""
    bytes_s: float


@dataclass(frozen=True)
class ThreadRead:
    num_threads: int
    bytes_s: float


@dataclass(frozen=True)
class LinkRate:
    """Of copies to a card and back, one at a time, from memory that is pinned."""

    name: str
    """The card's, as the engine has it: with its place on the bus."""
    up_bytes_s: float
    down_bytes_s: float

    def is_of(self, card: GpuFacts) -> bool:
        """Where the name has no place, it was the first."""
        _, at, bus_id = self.name.rpartition(" at ")
        return bus_id == card.bus_id.value if at else card.index == 0


@dataclass(frozen=True)
class NumaFacts:
    nodes: tuple[NodeFacts, ...]
    clustering: Fact[str]
    """none, SNC2, NPS4, ...: into how many nodes the system divides a package."""
    balancing: Fact[bool]
    """Whether the system moves pages between nodes by itself."""
    reads: Fact[tuple[NodeRead, ...]]
    """Of each node's memory by each node's threads."""


@dataclass(frozen=True)
class DimmFacts:
    locator: str
    num_bytes: int
    """0: an empty slot."""
    type: str
    mts: int
    """Million transfers a second, as configured; 0: not said."""
    rated_mts: int


@dataclass(frozen=True)
class MemoryFacts:
    total_bytes: Fact[int]
    """Of the machine, or what a container may have of it."""
    available_bytes: Fact[int]
    """What can be taken without swapping, within the limits of the cgroups."""
    limit_bytes: Fact[int]
    """The narrowest of the cgroups. Unknown: no limit."""
    swap_bytes: Fact[int]
    swap_free_bytes: Fact[int]
    huge_pages: Fact[str]
    """Transparent ones: always, madvise or never."""
    reserved_huge_bytes: Fact[int]
    """In huge pages that were set aside, which nothing else can use."""
    lockable_bytes: Fact[int]
    pressure: Fact[float]
    """Percent of the last minute that some process waited for memory."""
    dimms: Fact[tuple[DimmFacts, ...]]
    num_channels: Fact[int]
    """With a module in them."""
    nominal_bytes_s: Fact[float]
    """Channels times transfers."""
    read_bytes_s: Fact[float]
    """All cores together, each from its own node."""
    reads_by_threads: Fact[tuple[ThreadRead, ...]]
    """The same with fewer of them."""


@dataclass(frozen=True)
class LinkFacts:
    """PCIe, to the card."""

    generation: Fact[int]
    width: Fact[int]
    max_generation: Fact[int]
    """That card and slot can both do. Links fall back to 1 when idle."""
    max_width: Fact[int]
    max_bytes_s: Fact[float]
    """One way, as coded on the wire."""


@dataclass(frozen=True)
class GpuFacts:
    index: int
    """In PCI order, as NVML counts."""
    name: Fact[str]
    bus_id: Fact[str]
    total_bytes: Fact[int]
    free_bytes: Fact[int]
    is_unified: Fact[bool]
    """Its memory is the machine's."""
    bytes_s: Fact[float]
    compute_capability: Fact[str]
    node: Fact[int]
    link: LinkFacts


@dataclass(frozen=True)
class GpusFacts:
    driver: Fact[str]
    gpus: tuple[GpuFacts, ...]
    visible: Fact[tuple[int, ...]]
    """Indices of those that CUDA sees, in its order: the engine uses the first."""
    note: Fact[str]
    """What was seen and could not be asked."""
    copies: Fact[LinkRate]
    """To and from the card that the engine used."""


@dataclass(frozen=True)
class DiskFacts:
    folder: str
    """Where models are kept."""
    filesystem: Fact[str]
    free_bytes: Fact[int]
    """For this user."""
    is_writable: Fact[bool]
    read_bytes_s: Fact[float]


@dataclass(frozen=True)
class SurroundingsFacts:
    kernel: Fact[str]
    virtual_machine: Fact[str]
    """none, or by whom."""
    container: Fact[str]
    """none, or of which kind."""
    wsl: Fact[bool]


@dataclass(frozen=True)
class MachineFacts:
    surroundings: SurroundingsFacts
    cpu: CpuFacts
    numa: NumaFacts
    memory: MemoryFacts
    gpus: GpusFacts
    disk: DiskFacts
