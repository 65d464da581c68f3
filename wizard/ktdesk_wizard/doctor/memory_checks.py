"""Memory: how fast it could be, how much of it may be had, and what takes it away."""

from __future__ import annotations

from collections.abc import Iterator

from ktdesk_wizard.doctor.diagnosis import Case, Evidence, Finding, evidence

GIB = 2**30
LOW_SHARE = 0.5
"""Of the nominal bandwidth; below it something is wrong."""
MUCH_SWAP_BYTES = GIB
HIGH_PRESSURE = 5.0
RESERVED_SHARE = 0.05
LITTLE_SHARE = 0.5


def empty_channels(case: Case) -> Iterator[Finding]:
    """Channels work side by side: an empty one is bandwidth that was paid for. Slots that share a channel with a full
    one do not count."""
    memory = case.facts.memory
    empty = [dimm.locator for dimm in memory.dimms.value or () if not dimm.num_bytes]
    filled = [dimm for dimm in memory.dimms.value or () if dimm.num_bytes]
    if not empty or not filled or memory.num_channels.value is None:
        return
    one_a_channel = memory.num_channels.value == len(filled)
    severity = "slow" if one_a_channel else "note"
    yield Finding(
        "empty-slots",
        severity,  # type: ignore[arg-type]
        f"{len(filled)} of {len(filled) + len(empty)} slots have a module, {memory.num_channels.value} channels",
        (Evidence(f"empty: {', '.join(empty)}", memory.dimms.source), evidence(memory.num_channels)),
        "decoding is as fast as memory: if the board has more channels, put an equal module into each (its manual "
        "says which slots are whose)",
    )


def slow_modules(case: Case) -> Iterator[Finding]:
    dimms = case.facts.memory.dimms
    slow = [dimm for dimm in dimms.value or () if dimm.num_bytes and 0 < dimm.mts < dimm.rated_mts]
    if slow:
        text = f"{slow[0].locator}: {slow[0].mts} of {slow[0].rated_mts} MT/s"
        yield Finding(
            "slow-modules",
            "slow",
            f"{len(slow)} modules run slower than they are rated",
            (Evidence(text, dimms.source),),
            "switch on the modules' profile (XMP or EXPO) in the firmware; two modules a channel may forbid it",
        )


def unequal_modules(case: Case) -> Iterator[Finding]:
    dimms = case.facts.memory.dimms
    sizes = sorted({dimm.num_bytes for dimm in dimms.value or () if dimm.num_bytes})
    if len(sizes) > 1:
        shown = ", ".join(f"{size / GIB:g} GiB" for size in sizes)
        yield Finding(
            "unequal-modules",
            "slow",
            "modules have different sizes: part of the memory has fewer channels",
            (Evidence(shown, dimms.source),),
            "use modules of one size",
        )


def low_bandwidth(case: Case) -> Iterator[Finding]:
    memory = case.facts.memory
    read, nominal = memory.read_bytes_s, memory.nominal_bytes_s
    if read.value and nominal.value and read.confidence == "measured" and read.value < LOW_SHARE * nominal.value:
        yield Finding(
            "low-bandwidth",
            "slow",
            f"memory reads at {read.value / nominal.value:.0%} of what its modules promise",
            (
                evidence(read, lambda value: f"{value / 1e9:.1f} GB/s"),
                evidence(nominal, lambda value: f"{value / 1e9:.1f} GB/s"),
            ),
            "look whether other programs compute, and whether all cores may be used; then `ktdesk probe --measure`",
        )


def limited(case: Case) -> Iterator[Finding]:
    memory = case.facts.memory
    limit, total = memory.limit_bytes, memory.total_bytes
    if limit.value is not None and total.value is not None and limit.value < total.value:
        yield Finding(
            "memory-limit",
            "note",
            "a cgroup limits memory: beyond that, the process is killed",
            (evidence(limit, _gib), evidence(total, _gib)),
            "raise the limit (systemd: MemoryMax, of a container: --memory), or plan with --max-memory",
        )


def taken(case: Case) -> Iterator[Finding]:
    memory = case.facts.memory
    available, total = memory.available_bytes, memory.total_bytes
    if available.value is not None and total.value and available.value < LITTLE_SHARE * total.value:
        yield Finding(
            "memory-taken",
            "note",
            f"others have {1 - available.value / total.value:.0%} of the memory",
            (evidence(available, _gib), evidence(total, _gib)),
            "close what you do not need: a larger model, or a longer context, may then fit",
        )


def swapping(case: Case) -> Iterator[Finding]:
    memory = case.facts.memory
    swap, free = memory.swap_bytes.value, memory.swap_free_bytes.value
    if swap is not None and free is not None and swap - free > MUCH_SWAP_BYTES:
        yield Finding(
            "swap",
            "slow",
            "memory was swapped out: what lies there is read back at the speed of the disk",
            (Evidence(f"{_gib(swap - free)} of {_gib(swap)} in use", memory.swap_free_bytes.source),),
            "close something; as root, `swapoff -a && swapon -a` brings all back",
        )
    if memory.pressure.value is not None and memory.pressure.value > HIGH_PRESSURE:
        yield Finding(
            "pressure",
            "slow",
            "processes wait for memory",
            (evidence(memory.pressure, lambda value: f"{value:g} % of the last minute"),),
            "close something, or take a smaller model or context",
        )


def huge_pages(case: Case) -> Iterator[Finding]:
    memory = case.facts.memory
    if memory.huge_pages.value == "never":
        yield Finding(
            "huge-pages-off",
            "slow",
            "huge pages are off: reading weights misses the tables of pages more often",
            (evidence(memory.huge_pages),),
            "as root: echo madvise > /sys/kernel/mm/transparent_hugepage/enabled",
        )
    reserved, total = memory.reserved_huge_bytes.value, memory.total_bytes.value
    if reserved and total and reserved > RESERVED_SHARE * total:
        yield Finding(
            "reserved-pages",
            "note",
            "memory is set aside in huge pages of a fixed number, which ktdesk does not use",
            (evidence(memory.reserved_huge_bytes, _gib),),
            "as root: echo 0 > /proc/sys/vm/nr_hugepages, unless something else needs them",
        )


def balancing(case: Case) -> Iterator[Finding]:
    numa = case.facts.numa
    nodes = [node for node in numa.nodes if node.num_cores]
    if len(nodes) > 1 and numa.balancing.value:
        yield Finding(
            "numa-balancing",
            "slow",
            "the system moves pages between nodes by itself, while ktdesk has placed each where it is read",
            (evidence(numa.balancing, lambda value: "on"),),
            "as root: sysctl kernel.numa_balancing=0",
        )


def clustering(case: Case) -> Iterator[Finding]:
    fact = case.facts.numa.clustering
    if fact.value not in (None, "none"):
        yield Finding(
            "clustering",
            "note",
            f"a package is divided into nodes ({fact.value}): ktdesk puts a slice of every matrix on each",
            (evidence(fact),),
            "nothing: it may be as fast as one node, or faster; the firmware changes it",
        )


def _gib(num_bytes: float) -> str:
    return f"{num_bytes / GIB:.1f} GiB"
