"""One model into the store: killed at any time, out of room, with files that are here already."""

from __future__ import annotations

import errno
import hashlib
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from loopback_hub import Fault, LoopbackHub

from ktdesk_wizard.download import adopting, part_file
from ktdesk_wizard.download.origins import Patience
from ktdesk_wizard.download.part_file import PieceLimits
from ktdesk_wizard.download.pull import PulledModel, PullOptions, WantedModel, pull
from ktdesk_wizard.download.state import Watcher
from ktdesk_wizard.errors import FetchError, HomeFolderError, RefusedError, StoreError
from ktdesk_wizard.hub.http import Http
from ktdesk_wizard.hub.sets import gguf_sets
from ktdesk_wizard.hub.sources import find_repository, sources
from ktdesk_wizard.store.checking import is_checked, remove
from ktdesk_wizard.store.models import stored_models

KIB = 1 << 10
LIMITS = PieceLimits(64 * KIB, stretch_bytes=16 * KIB, stretch_seconds=0.05, commit_seconds=0.05)
PATIENCE = Patience(0.4, 0.01, 0.1, give_up_seconds=2, progress_bytes=8 * KIB)
OPTIONS = PullOptions(limits=LIMITS, patience=PATIENCE, num_connections=3)


@pytest.fixture
def files(hub: LoopbackHub) -> dict[str, bytes]:
    made = {f"Q8_0/a-Q8_0-0000{n}-of-00002.gguf": random.Random(n).randbytes(300 * KIB + n) for n in (1, 2)}
    for path, data in made.items():
        hub.add("o/n", path, data)
    return made


def wanted() -> WantedModel:
    repository = find_repository(Http(), sources(), "o/n", None)
    each = gguf_sets(repository.files)[0]
    return WantedModel("o/n:Q8_0", "Q8_0", repository.source, each.files, "o/n", "o/n", repository.commit)


def got(store: Path, options: PullOptions = OPTIONS, watcher: Watcher | None = None) -> PulledModel:
    return pull(Http(), store, wanted(), options, watcher=watcher)


def assert_whole(store: Path, files: dict[str, bytes]) -> None:
    """Listed, checked, right to the byte, and nothing else there."""
    (model,) = stored_models(store)
    assert model.name == "o/n:Q8_0"
    assert model.has_all, "random bytes, so no model"
    assert all(is_checked(model, file) for file in model.record.files)
    for path, data in files.items():
        assert (store / "o/n" / path).read_bytes() == data
    names = {path.name for path in store.rglob("*") if path.is_file()}
    assert names == {Path(path).name for path in files} | {"Q8_0.model.json", ".Q8_0.lock"}


def test_a_model_comes_into_the_store_and_again_nothing_is_fetched(
    hub: LoopbackHub, files: dict[str, bytes], tmp_path: Path
) -> None:
    first = got(tmp_path)
    assert_whole(tmp_path, files)
    assert first.path == tmp_path / "o/n/Q8_0/a-Q8_0-00001-of-00002.gguf"
    hub.asked.clear()
    again = got(tmp_path)
    assert (again.fetched_bytes, hub.bytes_asked()) == (0, [])
    assert again.record.added == first.record.added


KILLED = """
import sys
from pathlib import Path
sys.path[:0] = sys.argv[2:]
from test_pull import got
got(Path(sys.argv[1]))
"""


def test_killed_at_any_time_it_goes_on_from_there(hub: LoopbackHub, files: dict[str, bytes], tmp_path: Path) -> None:
    """Under its own name there is a whole file or none, after each kill. Little comes twice."""
    dice = random.Random()
    hub.bytes_s = 100 * KIB
    folders = [str(Path(__file__).parent), *sys.path]
    store, kills = tmp_path / "store", 0
    while True:
        before = len(hub.bytes_asked())
        with subprocess.Popen([sys.executable, "-c", KILLED, str(store), *folders]) as process:
            while process.poll() is None and len(hub.bytes_asked()) == before:
                time.sleep(0.01)
            time.sleep(dice.uniform(0, 0.6))
            process.send_signal(signal.SIGKILL)
            status = process.wait()
        for path, data in files.items():
            whole = store / "o/n" / path
            assert not whole.exists() or whole.read_bytes() == data
        if status == 0 or kills == 4:
            break
        kills += 1
    assert kills > 0
    hub.bytes_s = None
    rest = got(store)
    assert_whole(store, files)
    assert rest.fetched_bytes < 600 * KIB


def test_room_for_the_whole_set_is_checked_before_the_first_byte(
    hub: LoopbackHub, files: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ktdesk_wizard.download.room.RESERVE_BYTES", 1 << 60)
    with pytest.raises(HomeFolderError, match=r"are still to come .* try it with --force"):
        got(tmp_path)
    assert hub.bytes_asked() == []
    got(tmp_path, PullOptions(limits=LIMITS, patience=PATIENCE, ignores_room=True))
    assert_whole(tmp_path, files)


def test_a_disk_that_fills_up_halfway_keeps_what_came(
    hub: LoopbackHub, files: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, room = os.pwrite, [200 * KIB]

    def full(file: int, data: bytes, position: int) -> int:
        room[0] -= len(data)
        if room[0] < 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(file, data, position)

    monkeypatch.setattr(part_file.os, "pwrite", full)
    with pytest.raises(HomeFolderError, match=r"the disk is full\. What came is kept"):
        got(tmp_path)
    assert stored_models(tmp_path)[0].state == "partial"
    monkeypatch.setattr(part_file.os, "pwrite", real)
    assert got(tmp_path).fetched_bytes < 500 * KIB
    assert_whole(tmp_path, files)


def test_what_is_being_fetched_is_not_removed_and_afterwards_goes_whole(
    hub: LoopbackHub, files: dict[str, bytes], tmp_path: Path
) -> None:
    class Remover(Watcher):
        refusal = ""

        def saw(self, state: object) -> None:
            with pytest.raises(StoreError) as caught:
                remove(stored_models(tmp_path)[0], tmp_path)
            self.refusal = str(caught.value)

    remover = Remover()
    got(tmp_path, watcher=remover)
    assert remover.refusal == "o/n:Q8_0 is being fetched: stop that first"
    remove(stored_models(tmp_path)[0], tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_refusal_comes_before_anything_is_written(hub: LoopbackHub, files: dict[str, bytes], tmp_path: Path) -> None:
    hub.gated.add("o/n")
    with pytest.raises(RefusedError, match="HF_TOKEN"):
        got(tmp_path)
    assert stored_models(tmp_path) == []


@pytest.fixture
def _small_files_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adopting, "MIN_BYTES", 1)


@pytest.mark.usefixtures("_small_files_count")
def test_files_that_are_here_are_linked_by_hash_and_only_the_rest_is_fetched(
    hub: LoopbackHub, files: dict[str, bytes], tmp_path: Path
) -> None:
    (first, one), (_, two) = files.items()
    elsewhere = tmp_path / "lm studio" / "some" / "other name.gguf"
    elsewhere.parent.mkdir(parents=True)
    elsewhere.write_bytes(one)
    (elsewhere.parent / "same size.gguf").write_bytes(bytes(len(two)))
    pulled = got(tmp_path / "store", PullOptions((tmp_path,), limits=LIMITS, patience=PATIENCE))
    assert_whole(tmp_path / "store", files)
    adopted, fetched = pulled.record.files
    assert (adopted.origin, adopted.original) == ("hard link", str(elsewhere))
    assert (fetched.origin, fetched.original) == ("fetched", None)
    assert (tmp_path / "store/o/n" / first).stat().st_ino == elsewhere.stat().st_ino
    assert {asked.path for asked in hub.bytes_asked()} == {"/o/n/Q8_0/a-Q8_0-00002-of-00002.gguf"}


@pytest.mark.usefixtures("_small_files_count")
def test_where_a_hard_link_cannot_be_it_is_a_symbolic_one(
    hub: LoopbackHub, files: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*paths: object) -> None:
        raise OSError(errno.EXDEV, "Invalid cross-device link")

    monkeypatch.setattr(adopting.os, "link", refuse)
    blobs = tmp_path / "hub" / "blobs"
    blobs.mkdir(parents=True)
    for data in files.values():
        (blobs / hashlib.sha256(data).hexdigest()).write_bytes(data)
    pulled = got(tmp_path / "store", PullOptions((tmp_path / "hub",), limits=LIMITS, patience=PATIENCE))
    assert {file.origin for file in pulled.record.files} == {"symbolic link"}
    assert pulled.fetched_bytes == 0
    assert_whole(tmp_path / "store", files)


def test_a_file_that_was_spoiled_is_fetched_again_and_no_other(
    hub: LoopbackHub, files: dict[str, bytes], tmp_path: Path
) -> None:
    path = got(tmp_path).path
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    assert 300 * KIB <= got(tmp_path).fetched_bytes < 400 * KIB
    assert_whole(tmp_path, files)


def test_newer_files_at_the_source_are_told_and_fetched_if_asked_for(
    hub: LoopbackHub, files: dict[str, bytes], tmp_path: Path
) -> None:
    got(tmp_path)
    newer = {path: data + b"newer" for path, data in files.items()}
    for path, data in newer.items():
        hub.add("o/n", path, data)
    assert got(tmp_path).is_outdated
    assert_whole(tmp_path, files)
    got(tmp_path, PullOptions(limits=LIMITS, patience=PATIENCE, updates=True))
    assert_whole(tmp_path, newer)


def test_offline_what_is_not_here_cannot_be_had(hub: LoopbackHub, files: dict[str, bytes], tmp_path: Path) -> None:
    with pytest.raises(FetchError, match="HF_HUB_OFFLINE is set"):
        pull(None, tmp_path, wanted(), OPTIONS)


def test_interrupted_it_ends_at_once_and_keeps_what_came(
    hub: LoopbackHub, files: dict[str, bytes], tmp_path: Path
) -> None:
    class Impatient(Watcher):
        def saw(self, state: object) -> None:
            raise KeyboardInterrupt

    hub.bytes_s = 200 * KIB
    hub.faults = [None, Fault(stall_after=1000, stall_seconds=4)]
    started = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        got(tmp_path, watcher=Impatient())
    assert time.monotonic() - started < 3
    assert stored_models(tmp_path)[0].state == "partial"
    hub.bytes_s = None
    assert got(tmp_path).fetched_bytes < 600 * KIB + 3
    assert_whole(tmp_path, files)
