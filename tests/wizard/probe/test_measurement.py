"""Measurements: taken on the engine's kernels, kept for the machine they are of, and for no other."""

from __future__ import annotations

import errno
import json
from dataclasses import replace
from pathlib import Path

import pytest
from captured import captured_facts

from ktdesk_engine.benchmark import kernel_shares
from ktdesk_engine.benchmark.ceilings import Ceilings
from ktdesk_engine.kernels import worker_pool
from ktdesk_wizard.errors import HomeFolderError
from ktdesk_wizard.probe import measurement
from ktdesk_wizard.probe.fact import unknown
from ktdesk_wizard.probe.machine_facts import MachineFacts, ThreadRead
from ktdesk_wizard.probe.measurement import (
    FILE,
    Measurement,
    busy_note,
    check_can_be_kept,
    measurement_of,
    raise_ceilings,
    save_measurement,
    was_hurried,
    with_measurement,
)


@pytest.fixture
def facts(tmp_path: Path) -> MachineFacts:
    return captured_facts("two-sockets", tmp_path / "tree")


def taken(facts: MachineFacts, *, tiles: bool = True) -> Measurement:
    """Samples drift; the median of the reads is 30 GB/s."""
    reads = iter([10e9, 40e9, 30e9, 29e9, 31e9])
    peaks = {"int8": 1e12} | ({"int8 tiles": 4e12} if tiles else {})
    return measurement_of(facts, lambda: Ceilings(next(reads), peaks))


def test_the_median_of_the_samples_is_kept_and_comes_back_as_measured(facts: MachineFacts, tmp_path: Path) -> None:
    save_measurement(taken(facts), tmp_path / "data")
    known = with_measurement(facts, tmp_path / "data")
    assert known.memory.read_bytes_s.value == 30e9
    assert known.memory.read_bytes_s.confidence == "measured"
    assert (known.cpu.peak_ops_s.value, known.cpu.amx.measured.value) == (1e12, 4e12)
    assert [path.name for path in (tmp_path / "data").iterdir()] == [FILE]


def test_how_busy_the_machine_was_is_kept_and_said(facts: MachineFacts, tmp_path: Path) -> None:
    save_measurement(replace(taken(facts), busy_cores=29.5), tmp_path)
    note = busy_note(with_measurement(facts, tmp_path))
    assert note is not None
    assert "29.5 cores" in note
    assert "--measure" in note
    save_measurement(replace(taken(facts), busy_cores=0.5), tmp_path)
    assert busy_note(with_measurement(facts, tmp_path)) is None, "of so many cores that is nothing"
    assert busy_note(facts) is None


def test_what_a_run_saw_of_a_faster_machine_takes_the_place_of_what_was_measured(
    facts: MachineFacts, tmp_path: Path
) -> None:
    assert raise_ceilings(facts, tmp_path, 90e9, 1e12) is None, "nothing was measured yet"
    save_measurement(taken(facts), tmp_path)
    assert raise_ceilings(facts, tmp_path, 33e9, 1.1e12) is None, "a machine drifts"
    said = raise_ceilings(facts, tmp_path, 90e9, 0.9e12)
    assert said is not None
    assert "3.0 times" in said
    assert ": 90.0 GB/s and 1.00 T a second now, 30.0 GB/s and 1.00 T a second then;" in said
    known = with_measurement(facts, tmp_path)
    assert (known.memory.read_bytes_s.value, known.cpu.peak_ops_s.value) == (90e9, 1e12)


def test_without_tiles_the_peak_is_that_of_bytes(facts: MachineFacts, tmp_path: Path) -> None:
    save_measurement(taken(facts, tiles=False), tmp_path)
    known = with_measurement(facts, tmp_path)
    assert known.cpu.peak_ops_s.value == 1e12
    assert not known.cpu.amx.measured.is_known


def test_a_measurement_of_another_machine_or_version_is_void(facts: MachineFacts, tmp_path: Path) -> None:
    save_measurement(taken(facts), tmp_path)
    fewer = replace(facts, cpu=replace(facts.cpu, num_threads=replace(facts.cpu.num_threads, value=3)))
    assert with_measurement(fewer, tmp_path) == fewer
    save_measurement(replace(taken(facts), machine=taken(facts).machine + ".1"), tmp_path)
    assert with_measurement(facts, tmp_path) == facts


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"machine": 3}'])
def test_a_damaged_file_is_as_none(facts: MachineFacts, tmp_path: Path, text: str) -> None:
    (tmp_path / FILE).write_text(text)
    assert with_measurement(facts, tmp_path) == facts


def test_numbers_that_make_no_sense_are_as_none(facts: MachineFacts, tmp_path: Path) -> None:
    save_measurement(taken(facts), tmp_path)
    values = json.loads((tmp_path / FILE).read_text())
    for wrong in (0.0, -1.0, "much", None):
        (tmp_path / FILE).write_text(json.dumps(values | {"read_bytes_s": wrong}))
        assert with_measurement(facts, tmp_path) == facts


def test_a_folder_that_cannot_be_written_is_one_line(facts: MachineFacts, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(HomeFolderError, match="cannot be kept"):
        save_measurement(taken(facts), tmp_path / "file")


def test_a_full_disk_is_found_before_anything_is_measured_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An empty file can be made there."""
    check_can_be_kept(tmp_path)
    write = Path.write_bytes

    def full(path: Path, data: bytes) -> int:
        write(path, data[:0])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(HomeFolderError, match="No space left on device"):
        check_can_be_kept(tmp_path)
    assert list(tmp_path.iterdir()) == []


class PretendedMachine:
    """Whatever is looked at, computed or packed takes so long, by a clock of its own."""

    def __init__(self, seconds: float, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self._seconds = 0.0, seconds
        monkeypatch.setattr(measurement, "Probes", lambda pool, names: self)
        monkeypatch.setattr(measurement, "reads_by_threads", lambda places: iter([ThreadRead(1, 1e10)]))
        monkeypatch.setattr(measurement, "rate_of_card", lambda pool: None)
        for name in ("_experts", "_matrix", "_attention"):
            monkeypatch.setattr(kernel_shares, name, self._make)

    def _work(self) -> None:
        self.now += self._seconds

    def measure(self) -> Ceilings:
        self._work()
        return Ceilings(1e10, {"int8": 1e12, "int8 tiles": 4e12})

    def measure_peak(self, name: str) -> float:
        self._work()
        return 1e12

    def _make(self, pool: object, weight_type: object = None) -> tuple[object, float]:
        self.now += 4 * self._seconds
        return self._work, 1e9


@pytest.mark.parametrize("seconds", [0.001, 0.05, 0.2, 1.0])
def test_a_measurement_ends_within_a_minute_however_slow_the_machine_is(
    facts: MachineFacts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    machine, told = PretendedMachine(seconds, monkeypatch), list[float]()
    found = measurement.measure(facts, advance=told.append, clock=lambda: machine.now)
    assert machine.now < 60
    assert told == sorted(told)
    assert {share.type for share in found.kernel_shares} >= {"f16", "Q4_K"}, "those that most models need"
    save_measurement(found, tmp_path)
    known = with_measurement(facts, tmp_path)
    if seconds < 0.01:
        assert (found.turns_share, len(found.kernel_shares)) == (1.0, kernel_shares.num_shares(worker_pool(1)))
        assert "usual turns" not in known.cpu.peak_ops_s.source
        assert not was_hurried(known)
    else:
        assert 0 < found.turns_share < 1
        assert f"{found.turns_share:.0%} of the usual turns" in known.cpu.peak_ops_s.source
        assert "less certain" in str(busy_note(replace(known, cpu=replace(known.cpu, busy_cores=unknown("")))))


def test_of_a_measurement_that_is_stopped_nothing_comes(facts: MachineFacts, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = PretendedMachine(0.001, monkeypatch)
    steps = iter(range(20))

    def check(stage: str) -> None:
        if next(steps) == 10:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        measurement.measure(facts, check, clock=lambda: machine.now)
