"""How fast memory is read by one thread, two, four and so on, and by each node of another's; and the link to a card.

Measured with the engine's own probes and its own backend of a card.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import groupby
from statistics import median

from ktdesk_engine import kernels
from ktdesk_engine.accelerators import open_accelerator
from ktdesk_engine.backends.accelerator import Accelerator, CopyWay
from ktdesk_engine.benchmark.ceilings import Probes
from ktdesk_engine.errors import EngineError
from ktdesk_engine.kernels import WorkerPool
from ktdesk_engine.kernels.pools import ThreadPlace
from ktdesk_wizard.probe.machine_facts import LinkRate, NodeRead, ThreadRead

LOOKS = 3
COPY_BYTES = 256 << 20
CARD_BYTES = 2 << 30
"""That the measurement may take of a card."""


def reads_by_threads(places: Sequence[ThreadPlace]) -> Iterator[ThreadRead]:
    """1, 2, 4, ... and all of them, each time with the threads spread over the nodes as the engine spreads them."""
    counts = [*(2**power for power in range(len(places).bit_length()) if 2**power < len(places)), len(places)]
    for count in counts:
        chosen = [places[index * len(places) // count] for index in range(count)]
        pool = kernels.worker_pool(count, places=_without_gaps(chosen))
        yield ThreadRead(count, _read(Probes(pool, []), pool))


def reads_by_nodes(places: Sequence[ThreadPlace], node_ids: Sequence[int]) -> Iterator[NodeRead]:
    """Every node's threads, of every node's memory: which is that of the node whose threads write to it first. Of one
    node nothing, for that is what all threads read. node_ids: of the groups of the places, in order."""
    groups = [list(group) for _, group in groupby(places, key=lambda place: place.group)]
    if len(groups) < 2 or len(groups) != len(node_ids):
        return
    pools = []
    for group in groups:
        with _running_on(group[0].cpus):  # a pool's first thread is the calling one
            pools.append(kernels.worker_pool(len(group), places=_without_gaps(group)))
    for owner, memory in enumerate(node_ids):
        with _running_on(groups[owner][0].cpus):
            probes = Probes(pools[owner], [])
        for reader, node in enumerate(node_ids):
            with _running_on(groups[reader][0].cpus):
                yield NodeRead(node, memory, _read(probes, pools[reader]))


def link_rate(accelerator: Accelerator) -> LinkRate:
    ways: tuple[CopyWay, CopyWay] = ("up", "down")
    up, down = (
        COPY_BYTES / median(accelerator.copy_seconds(COPY_BYTES, way) for _ in range(1 + LOOKS)) for way in ways
    )
    return LinkRate(accelerator.name, up, down)


def rate_of_card(pool: WorkerPool) -> LinkRate | None:
    """Of the card that the engine uses. None where there is none, or torch is not here."""
    with suppress(EngineError):
        accelerator = open_accelerator("cuda", pool, CARD_BYTES)
        assert accelerator is not None
        try:
            return link_rate(accelerator)
        finally:
            accelerator.close()
    return None


def _read(probes: Probes, pool: WorkerPool) -> float:
    return median(probes.read_by(pool) for _ in range(LOOKS))


def _without_gaps(places: Sequence[ThreadPlace]) -> list[ThreadPlace]:
    """Groups counted from 0."""
    numbers = {group: number for number, group in enumerate(dict.fromkeys(place.group for place in places))}
    return [ThreadPlace(numbers[place.group], place.cpus) for place in places]


@contextmanager
def _running_on(cpus: Sequence[int]) -> Iterator[None]:
    """The calling thread."""
    before = os.sched_getaffinity(0)
    try:
        if cpus:
            os.sched_setaffinity(0, cpus)
        yield
    finally:
        os.sched_setaffinity(0, before)
