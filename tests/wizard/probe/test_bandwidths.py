"""Bandwidth by threads, from node to node, and over the link to a card, on pretended nodes and a card that is none."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
from benchmarks import use_small_probes
from captured import captured_facts
from planned_models import WITH_GPU, qwen3_30b

from ktdesk_engine.errors import AcceleratorError
from ktdesk_engine.kernels.pools import ThreadPlace
from ktdesk_engine.machine import thread_places
from ktdesk_wizard.plan.ceilings import ceilings_of
from ktdesk_wizard.plan.planner import make_plan
from ktdesk_wizard.plan.wishes import Wishes
from ktdesk_wizard.probe import bandwidths
from ktdesk_wizard.probe.bandwidths import link_rate, rate_of_card, reads_by_nodes, reads_by_threads
from ktdesk_wizard.probe.fact import measured
from ktdesk_wizard.probe.machine_facts import LinkRate, MachineFacts, NodeRead, ThreadRead
from ktdesk_wizard.probe.measurement import save_measurement, with_measurement


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    use_small_probes(monkeypatch)


class FakeCard:
    """16 GiB/s to it, and 8 back."""

    name = "a card"

    def __init__(self) -> None:
        self.is_closed = False

    def copy_seconds(self, num_bytes: int, way: str) -> float:
        return num_bytes / {"up": 2**34, "down": 2**33}[way]

    def close(self) -> None:
        self.is_closed = True


def test_each_pair_of_nodes_is_measured_and_the_caller_runs_where_it_ran() -> None:
    before = os.sched_getaffinity(0)
    reads = list(reads_by_nodes(thread_places(4, num_nodes=2), (0, 3)))
    assert [(read.reader, read.memory) for read in reads] == [(0, 0), (3, 0), (0, 3), (3, 3)]
    assert all(read.bytes_s > 0 for read in reads)
    assert os.sched_getaffinity(0) == before


def test_of_one_node_there_is_nothing_to_compare() -> None:
    assert list(reads_by_nodes(thread_places(2, num_nodes=1), (0,))) == []
    assert list(reads_by_nodes(thread_places(4, num_nodes=2), (0,))) == [], "who is which node is not known"


def test_threads_are_doubled_until_all_read() -> None:
    reads = list(reads_by_threads([ThreadPlace(group, ()) for group in (0, 0, 0, 1, 1, 1)]))
    assert [read.num_threads for read in reads] == [1, 2, 4, 6]
    assert all(read.bytes_s > 0 for read in reads)


def test_a_card_is_copied_to_and_from(monkeypatch: pytest.MonkeyPatch) -> None:
    card = FakeCard()
    assert link_rate(card) == LinkRate("a card", 2**34, 2**33)  # type: ignore[arg-type]
    monkeypatch.setattr(bandwidths, "open_accelerator", lambda *_: card)
    assert rate_of_card(None) == LinkRate("a card", 2**34, 2**33)  # type: ignore[arg-type]
    assert card.is_closed

    def refuse(*_: object) -> None:
        raise AcceleratorError("no driver")

    monkeypatch.setattr(bandwidths, "open_accelerator", refuse)
    assert rate_of_card(None) is None  # type: ignore[arg-type]


@pytest.fixture
def facts(tmp_path: Path) -> MachineFacts:
    return captured_facts("two-sockets", tmp_path / "tree")


def test_what_was_measured_comes_back(facts: MachineFacts, tmp_path: Path) -> None:
    from trials import measurement_of

    found = replace(
        measurement_of(facts),
        reads_by_threads=(ThreadRead(1, 1e10), ThreadRead(2, 2e10)),
        reads_by_nodes=(NodeRead(0, 1, 5e9),),
        copies=LinkRate("a card", 16e9, 8e9),
    )
    save_measurement(found, tmp_path / "data")
    known = with_measurement(facts, tmp_path / "data")
    assert known.memory.reads_by_threads.value == found.reads_by_threads
    assert known.numa.reads.value == found.reads_by_nodes
    assert known.gpus.copies.value == found.copies


def test_a_plan_with_fewer_threads_has_what_they_read(facts: MachineFacts) -> None:
    reads = (ThreadRead(1, 1e10), ThreadRead(4, 3e10), ThreadRead(64, 6e10))
    memory = replace(facts.memory, read_bytes_s=measured(5e10, "test"), reads_by_threads=measured(reads, "test"))
    known = replace(facts, memory=memory)
    for num_threads, share in ((1, 1 / 6), (2, 1 / 2), (64, 1.0), (99, 1.0)):
        read = ceilings_of(known, num_threads).read_bytes_s
        assert read is not None
        assert read.high == pytest.approx(5e10 * share)


def test_a_plan_counts_with_the_link_that_was_measured(tmp_path: Path) -> None:
    facts = captured_facts("desktop", tmp_path / "tree")
    slow = replace(facts, gpus=replace(facts.gpus, copies=measured(LinkRate("a card", 1e9, 5e8), "test")))
    wishes = Wishes(context=4096, devices="gpu")
    before, after = (make_plan(each, qwen3_30b(), wishes, WITH_GPU).decode for each in (facts, slow))
    seconds = [{lane.name: lane.max_seconds for lane in each.lanes}["PCIe 0"] for each in (before, after)]
    assert seconds[1] > 1.1 * seconds[0]
