"""What the doctor finds on captured machines, and what a report leaves out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from captured import captured_facts
from hypothesis import given, settings
from hypothesis import strategies as st
from machine_trees import GIB, MACHINES

from ktdesk_wizard.doctor.checks import CHECKS
from ktdesk_wizard.doctor.diagnosis import SEVERITIES, Case, Evidence, Finding, examine, has_trouble
from ktdesk_wizard.doctor.redaction import redaction_of
from ktdesk_wizard.probe.fact import measured, reported
from ktdesk_wizard.probe.machine_facts import DimmFacts, MachineFacts

NOW = datetime(2026, 11, 30, tzinfo=timezone.utc)


def findings_of(facts: MachineFacts, days: int | None = 1, **environment: str) -> dict[str, Finding]:
    measured_at = None if days is None else NOW - timedelta(days=days)
    found = examine(Case(facts, NOW, measured_at, environment), CHECKS)
    assert len({finding.id for finding in found}) == len(found)
    return {finding.id: finding for finding in found}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("desktop", {"governor", "empty-slots"}),
        ("two-sockets", {"numa-balancing"}),
        ("snc", {"numa-balancing", "clustering"}),
        ("nps4", {"numa-balancing", "clustering"}),
        ("cgroup-v2", {"governor", "empty-slots", "cpu-quota", "memory-limit", "memory-taken"}),
        ("cgroup-v1", {"cpu-quota", "memory-limit", "memory-taken"}),
        ("container", {"memory-limit", "memory-taken"}),
        ("wsl2", {"slow-filesystem", "wsl-memory"}),
        ("masked-amx", {"amx-masked"}),
        ("refused-amx", {"amx-kernel"}),
        ("hybrid", {"hybrid-cores", "cards-unknown"}),
        ("unified", {"no-avx2"}),
    ],
)
def test_each_captured_machine_has_its_own_troubles(name: str, expected: set[str], tmp_path: Path) -> None:
    found = findings_of(captured_facts(name, tmp_path))
    assert set(found) - {"disk-full"} == expected


@pytest.mark.parametrize("name", MACHINES)
def test_every_finding_has_evidence_with_a_source_and_a_way_to_mend_it(name: str, tmp_path: Path) -> None:
    found = list(findings_of(captured_facts(name, tmp_path), None).values())
    assert found, "at least that it was not measured"
    for finding in found:
        assert finding.evidence
        assert all(evidence.value and evidence.source for evidence in finding.evidence)
        assert finding.fix
    order = [SEVERITIES.index(finding.severity) for finding in found]
    assert order == sorted(order)


def of_memory(**changes: object) -> Callable[[MachineFacts], MachineFacts]:
    facts = {name: reported(value, "test") for name, value in changes.items()}
    return lambda machine: replace(machine, memory=replace(machine.memory, **facts))  # type: ignore[arg-type]


def of_disk(**changes: object) -> Callable[[MachineFacts], MachineFacts]:
    facts = {name: reported(value, "test") for name, value in changes.items()}
    return lambda machine: replace(machine, disk=replace(machine.disk, **facts))  # type: ignore[arg-type]


def driver(version: str) -> Callable[[MachineFacts], MachineFacts]:
    return lambda machine: replace(machine, gpus=replace(machine.gpus, driver=reported(version, "NVML")))


def slow_reads(machine: MachineFacts) -> MachineFacts:
    memory = replace(machine.memory, read_bytes_s=measured(20e9, "test"), nominal_bytes_s=reported(96e9, "test"))
    return replace(machine, memory=memory)


MODULES = (DimmFacts("A1", 32 * GIB, "DDR5", 4800, 6000), DimmFacts("B1", 16 * GIB, "DDR5", 6000, 6000))


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (of_memory(huge_pages="never"), "huge-pages-off"),
        (of_memory(reserved_huge_bytes=32 * GIB), "reserved-pages"),
        (of_memory(swap_bytes=8 * GIB, swap_free_bytes=2 * GIB), "swap"),
        (of_memory(pressure=30.0), "pressure"),
        (of_memory(dimms=MODULES), "slow-modules"),
        (of_memory(dimms=MODULES), "unequal-modules"),
        (slow_reads, "low-bandwidth"),
        (of_disk(is_writable=False), "folder-unwritable"),
        (of_disk(read_bytes_s=120e6), "slow-disk"),
        (of_disk(free_bytes=GIB), "disk-full"),
        (of_disk(filesystem="nfs4"), "slow-filesystem"),
        (driver("470.82.01"), "old-driver"),
    ],
)
def test_what_is_wrong_is_found_and_only_where_it_is(
    change: Callable[[MachineFacts], MachineFacts], expected: str, tmp_path: Path
) -> None:
    facts = of_disk(free_bytes=900 * GIB)(captured_facts("desktop", tmp_path))
    assert expected not in findings_of(facts)
    assert expected in findings_of(change(facts))


def test_a_present_driver_is_no_trouble_and_an_unwritable_folder_is(tmp_path: Path) -> None:
    facts = captured_facts("desktop", tmp_path)
    assert "old-driver" not in findings_of(driver("570.86.10")(facts))
    assert not has_trouble(findings_of(facts).values())
    assert has_trouble(findings_of(of_disk(is_writable=False)(facts)).values())


def test_a_lane_that_is_missing_is_told(tmp_path: Path) -> None:
    facts = captured_facts("desktop", tmp_path)
    (card,) = facts.gpus.gpus
    narrow = replace(card, link=replace(card.link, width=reported(4, "NVML")))
    found = findings_of(replace(facts, gpus=replace(facts.gpus, gpus=(narrow,))))
    assert "4 of 16 PCIe lanes" in found["narrow-link"].title


def test_a_measurement_is_missing_or_old(tmp_path: Path) -> None:
    facts = captured_facts("desktop", tmp_path)
    assert "not-measured" in findings_of(facts, None)
    assert "100 days ago" in findings_of(facts, 100)["old-measurement"].title
    assert not {"not-measured", "old-measurement"} & set(findings_of(facts, 10))


def test_a_measurement_of_a_busy_machine_is_told(tmp_path: Path) -> None:
    facts = captured_facts("desktop", tmp_path)
    busy = replace(facts, cpu=replace(facts.cpu, busy_cores=measured(5.5, "test")))
    assert "5.5 cores" in findings_of(busy)["busy-measurement"].evidence[0].value
    quiet = replace(facts, cpu=replace(facts.cpu, busy_cores=measured(0.1, "test")))
    assert "busy-measurement" not in findings_of(quiet)


def test_variables_that_overrule_are_told(tmp_path: Path) -> None:
    found = findings_of(captured_facts("desktop", tmp_path), KTDESK_ISA="avx2")
    assert found["environment"].evidence == (Evidence("avx2", "the environment variable KTDESK_ISA"),)


HERE = redaction_of("/home/mallory", "mallory", "vault17.example.org")


@pytest.mark.parametrize(
    "text",
    [
        "/home/mallory/models/a.gguf",
        "statvfs of /home/mallory",
        "seen on vault17.example.org by mallory",
        "vault17: ready",
        "token=abcdef123456 and HF_TOKEN: hf_ABCDEFGHIJKLMNOP",
        "Authorization: Bearer abcdef.ghijkl",
        "https://mallory:pass@hub/x",
        "mail to mallory@example.org from 192.168.1.17",
        "/Users/mallory/x and /home/eve/y",
        "aa:bb:cc:dd:ee:ff",
    ],
)
def test_a_report_has_no_names_folders_keys_and_addresses(text: str) -> None:
    shown = HERE.text(text)
    for secret in ("mallory", "vault17", "eve", "abcdef", "hf_ABC", "pass@", "192.168", "aa:bb"):
        assert secret not in shown
    assert "<" in shown


@settings(deadline=None)
@given(st.recursive(st.text(alphabet="ab /.:mallory17", max_size=30), lambda inner: st.lists(inner, max_size=3)))
def test_no_text_in_any_place_keeps_the_home_folder(value: object) -> None:
    around = {"/home/mallory/key": value, "list": ["x/home/mallory/x", value]}
    assert "/home/mallory" not in str(HERE.value(around))


def test_what_is_not_secret_stays() -> None:
    for text in ("Intel(R) Xeon(R) Platinum 8480+", "/sys/devices/system/cpu", "22 tokens", "password: is short"[:8]):
        assert HERE.text(text) == text
    assert redaction_of("/root", "root", "localhost").text("as root: sysctl") == "as root: sysctl"
