"""`probe` on captured machines: what it says of each, and that it never guesses."""

from __future__ import annotations

import json
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import pytest
from captured import captured_facts, facts_below
from machine_trees import GIB, MACHINES, Captured, FakeNvml, Tree, write_machine

from ktdesk.json_output import json_text
from ktdesk.machine_text import as_text
from ktdesk_wizard.errors import FactsError
from ktdesk_wizard.probe.fact import CONFIDENCES, Fact
from ktdesk_wizard.probe.facts_json import facts_to_json, overlay, read_what_if


def all_facts(node: Any) -> list[Fact[Any]]:
    if isinstance(node, Fact):
        return [node]
    if isinstance(node, tuple):
        return [fact for item in node for fact in all_facts(item)]
    if is_dataclass(node):
        return [fact for field in fields(node) for fact in all_facts(getattr(node, field.name))]
    return []


@pytest.mark.parametrize("name", MACHINES)
def test_each_fact_has_a_source_and_what_is_unknown_has_no_value(name: str, tmp_path: Path) -> None:
    facts = all_facts(captured_facts(name, tmp_path))
    assert len(facts) > 40
    for fact in facts:
        assert fact.source
        assert fact.confidence in CONFIDENCES
        assert (fact.value is None) == (fact.confidence == "unknown")


@pytest.mark.parametrize("name", MACHINES)
def test_facts_come_back_from_json_as_they_were(name: str, tmp_path: Path) -> None:
    facts = captured_facts(name, tmp_path)
    other = captured_facts("container" if name != "container" else "desktop", tmp_path / "other")
    assert overlay(other, json.loads(json_text(facts_to_json(facts))), "file") == facts


@pytest.mark.parametrize("name", MACHINES)
def test_a_machine_can_be_told_of_with_and_without_sources(name: str, tmp_path: Path) -> None:
    facts = captured_facts(name, tmp_path)
    short, long = (as_text(facts, with_sources=sources) for sources in (False, True))
    assert len(short.splitlines()) == len(long.splitlines()) > 25
    assert "None" not in short


def test_a_desktop_is_told_by_cores_modules_and_card(tmp_path: Path) -> None:
    facts = captured_facts("desktop", tmp_path)
    assert facts.cpu.name.value == "AMD Ryzen 9 7950X 16-Core Processor"
    assert (facts.cpu.num_cores.value, facts.cpu.num_hardware_threads.value) == (16, 32)
    assert (facts.cpu.num_threads.value, facts.cpu.isa.value) == (16, "avx512")
    assert facts.cpu.max_hz.value == 5.881e9
    assert facts.cpu.l3_bytes.value == 32 << 20
    assert facts.numa.clustering.value == "none"
    assert facts.memory.num_channels.value == 2
    assert facts.memory.nominal_bytes_s.value == 96e9  # 2 channels of 8 bytes, 6000 MT/s
    assert [dimm.num_bytes for dimm in facts.memory.dimms.value or ()] == [32 * GIB, 32 * GIB, 0, 0]
    assert facts.memory.available_bytes.value == 58 * GIB
    assert facts.surroundings.virtual_machine.value == facts.surroundings.container.value == "none"
    assert "2 x 32.0 GiB DDR5-6000, 2 slots empty" in as_text(facts, with_sources=False)


def test_a_card_that_sleeps_is_judged_by_what_its_link_can_do(tmp_path: Path) -> None:
    (card,) = captured_facts("desktop", tmp_path).gpus.gpus
    assert (card.link.generation.value, card.link.max_generation.value) == (1, 4)
    assert card.link.max_bytes_s.value == pytest.approx(31.5e9, rel=0.01)
    assert card.bytes_s.value == pytest.approx(1008e9, rel=0.001)  # 2 x 10501 MHz x 384 bits
    assert card.compute_capability.value == "8.9"
    assert card.bus_id.value == "0000:01:00.0"
    assert not card.node.is_known  # -1


def test_two_sockets_have_a_node_each_and_the_card_sits_on_one(tmp_path: Path) -> None:
    facts = captured_facts("two-sockets", tmp_path)
    assert (facts.cpu.num_packages.value, facts.numa.clustering.value) == (2, "none")
    assert [(node.num_cores, node.distances) for node in facts.numa.nodes] == [(56, (10, 21)), (56, (21, 10))]
    assert facts.memory.num_channels.value == 16
    assert facts.memory.nominal_bytes_s.value == 16 * 8 * 4800e6
    assert facts.gpus.gpus[0].node.value == 1
    assert facts.cpu.isa.value == "amx"


def test_clusters_of_a_package_are_counted_and_memory_alone_is_a_node(tmp_path: Path) -> None:
    facts = captured_facts("snc", tmp_path)
    assert facts.numa.clustering.value == "SNC3"
    assert [node.num_cores for node in facts.numa.nodes] == [43, 43, 42, 0]
    assert not facts.memory.dimms.is_known
    assert not facts.memory.nominal_bytes_s.is_known


def test_nps4_has_four_nodes_with_the_bandwidth_that_the_firmware_tells(tmp_path: Path) -> None:
    facts = captured_facts("nps4", tmp_path)
    assert facts.numa.clustering.value == "NPS4"
    assert [node.read_bytes_s.value for node in facts.numa.nodes] == [110e9] * 4
    assert len(facts.memory.dimms.value or ()) == 12
    assert not facts.memory.nominal_bytes_s.is_known  # EDAC knows no speed
    assert [card.node.value for card in facts.gpus.gpus] == [3, 1]


def test_cached_files_of_a_cgroup_do_not_count_as_used(tmp_path: Path) -> None:
    facts = captured_facts("cgroup-v2", tmp_path)
    assert facts.memory.limit_bytes.value == 32 * GIB
    assert facts.memory.available_bytes.value == (32 - (30 - 20 - 2)) * GIB
    assert facts.cpu.quota_cores.value == 4
    assert facts.cpu.num_threads.value == 4


def test_of_nested_groups_of_version_1_the_narrowest_counts(tmp_path: Path) -> None:
    facts = captured_facts("cgroup-v1", tmp_path)
    assert facts.memory.limit_bytes.value == 48 * GIB
    assert facts.memory.available_bytes.value == (48 - (20 - 12)) * GIB
    assert "job7/memory.limit_in_bytes" in facts.memory.available_bytes.source
    assert (facts.cpu.num_cores.value, facts.cpu.num_threads.value) == (16, 6)
    assert facts.disk.filesystem.value == "xfs"


def test_a_container_has_only_the_cores_and_the_memory_it_was_given(tmp_path: Path) -> None:
    facts = captured_facts("container", tmp_path)
    assert facts.surroundings.container.value == "Kubernetes"
    assert (facts.cpu.num_cores.value, facts.cpu.num_hardware_threads.value) == (4, 8)
    assert facts.memory.available_bytes.value == 54 * GIB


def test_wsl_is_named_and_a_library_that_knows_little_leaves_facts_unknown(tmp_path: Path) -> None:
    facts = captured_facts("wsl2", tmp_path)
    assert facts.surroundings.wsl.value
    assert facts.disk.filesystem.value == "9p"
    (card,) = facts.gpus.gpus
    assert card.total_bytes.value == 12 * GIB
    assert not card.bytes_s.is_known
    assert not card.link.max_bytes_s.is_known


def test_tiles_without_what_unpacks_to_them_are_no_tiles(tmp_path: Path) -> None:
    facts = captured_facts("masked-amx", tmp_path)
    assert facts.cpu.amx.flag.value is False
    assert "avx512_fp16" in facts.cpu.amx.flag.source
    assert not facts.cpu.amx.permission.is_known  # it was not asked for
    assert facts.cpu.isa.value == "avx512"
    assert facts.surroundings.virtual_machine.value == "QEMU"


def test_each_light_of_amx_is_its_own(tmp_path: Path) -> None:
    amx = captured_facts("refused-amx", tmp_path).cpu.amx
    assert [amx.flag.value, amx.kernel.value, amx.permission.value] == [True, False, False]
    assert "refuses" in amx.permission.source
    assert not amx.measured.is_known


def test_a_card_without_a_library_is_still_seen_and_one_of_another_maker_is_named(tmp_path: Path) -> None:
    facts = captured_facts("hybrid", tmp_path)
    (card,) = facts.gpus.gpus
    assert card.name.value == "NVIDIA GeForce RTX 5070"
    assert (card.link.max_generation.value, card.link.max_width.value) == (5, 8)
    assert not card.total_bytes.is_known
    assert "nvidia-ml-py" in card.total_bytes.source
    assert "0x8086" in (facts.gpus.note.value or "")
    assert facts.cpu.core_kinds.value == "8 performance, 16 efficiency"
    assert facts.memory.num_channels.value == 2  # two controllers, two modules on each


def test_a_card_without_memory_of_its_own_has_the_machines(tmp_path: Path) -> None:
    facts = captured_facts("unified", tmp_path)
    (card,) = facts.gpus.gpus
    assert card.is_unified.value
    assert card.total_bytes.value == 120 * GIB
    assert card.node.value == 0
    assert facts.cpu.isa.value == "scalar"


def test_a_library_that_refuses_says_why(tmp_path: Path) -> None:
    captured = write_machine("desktop", tmp_path)
    captured.nvml = FakeNvml(failure="Driver/library version mismatch")
    facts = facts_below(captured)
    assert "version mismatch" in facts.gpus.driver.source
    assert not facts.gpus.gpus[0].total_bytes.is_known


def test_a_machine_that_tells_nothing_is_unknown_and_no_error(tmp_path: Path) -> None:
    facts = facts_below(write_nothing(tmp_path))
    assert not facts.cpu.name.is_known
    assert not facts.memory.total_bytes.is_known
    assert facts.numa.nodes == ()
    assert as_text(facts, with_sources=True)


def write_nothing(root: Path) -> Captured:
    Tree(root).write("proc/version", "Linux")
    return Captured(root)


def test_a_mount_with_a_space_in_its_name_and_one_that_hides_another_are_found(tmp_path: Path) -> None:
    captured = write_machine("desktop", tmp_path)
    lines = ["1 0 8:1 / / rw - ext4 a rw", r"2 1 8:2 / /home/my\040models rw - xfs b rw"]
    lines.append(r"3 2 8:3 / /home/my\040models rw - btrfs c rw")
    Tree(tmp_path).write("proc/self/mountinfo", "\n".join(lines))
    (tmp_path / "home/my models").mkdir()
    assert facts_below(captured, Path("/home/my models/new")).disk.filesystem.value == "btrfs"
    assert facts_below(captured, Path("/home/my")).disk.filesystem.value == "ext4"


def test_a_file_of_facts_may_change_only_some(tmp_path: Path) -> None:
    facts = captured_facts("desktop", tmp_path)
    path = tmp_path / "more.yaml"
    path.write_text("memory: {available_bytes: 137438953472}\ngpus: {gpus: []}\n")
    changed = read_what_if(path, facts)
    assert changed.memory.available_bytes == Fact(128 * GIB, str(path), "given")
    assert changed.gpus.gpus == ()
    assert changed.cpu == facts.cpu


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("memory: {free: 3}", "unknown key 'free'"),
        ("memory: {total_bytes: much}", "total_bytes must be of type int: 'much'"),
        ("memory: {total_bytes: -1}", "must be a number from 0 up"),
        ("memory: {total_bytes: {value: 3}}", "value, source and confidence"),
        ("memory: {total_bytes: {value: 3, source: me, confidence: sure}}", "confidence must be one of"),
        ("memory: {total_bytes: {value: null, source: me, confidence: given}}", "what has none is unknown"),
        ("gpus: {gpus: 3}", "must be a list"),
        ("numa: {nodes: [{id: 0}]}", "num_cores is missing"),
        ("cpu: 3", "must hold keys and values"),
        ("- 3", "must hold keys and values"),
        ("{", "neither JSON nor YAML"),
    ],
)
def test_a_wrong_file_of_facts_is_refused_with_file_and_key(text: str, message: str, tmp_path: Path) -> None:
    facts = captured_facts("desktop", tmp_path)
    path = tmp_path / "wrong.yaml"
    path.write_text(text)
    with pytest.raises(FactsError, match=r"wrong\.yaml") as error:
        read_what_if(path, facts)
    assert message in str(error.value)
