"""Files of pages: what is served is what was written, below a limit, whatever happened to the files."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from fake_pool import content_of

from ktdesk_engine.errors import ResourceError
from ktdesk_engine.prefix_cache import page_writer
from ktdesk_engine.prefix_cache.disk_store import DiskStore
from ktdesk_engine.prefix_cache.page_file import HEADER, PageName, write_page_file
from ktdesk_engine.prefix_cache.pages import DIGEST_BYTES, chained_digest

FINGERPRINT = b"f" * DIGEST_BYTES
OTHER = b"o" * DIGEST_BYTES
PAGE_BYTES = 50
FILE_BYTES = HEADER.size + 1 + PAGE_BYTES


def digest(number: int) -> bytes:
    return chained_digest(FINGERPRINT, bytes([number]))


def put(store: DiskStore, number: int, used_ns: int | None = None) -> bool:
    content = content_of([bytes([number])], PAGE_BYTES)
    return store.write(digest(number), bytes([number]), content, used_ns or time.time_ns())


def get(store: DiskStore, number: int) -> bytes | None:
    content = store.read(digest(number), bytes([number]), PAGE_BYTES)
    return None if content is None else content.tobytes()


def path_of(folder: Path, number: int) -> Path:
    return folder / PageName(FINGERPRINT, digest(number), b"").relative_path


def filled(folder: Path, count: int) -> None:
    with DiskStore(folder, FINGERPRINT, 100 * FILE_BYTES) as store:
        for number in range(count):
            assert put(store, number)


def test_a_page_comes_back_as_it_was_written_in_the_next_process_too(tmp_path: Path) -> None:
    filled(tmp_path, 3)
    with DiskStore(tmp_path, FINGERPRINT, 100 * FILE_BYTES) as store:
        assert get(store, 1) == content_of([b"\1"], PAGE_BYTES).tobytes()
        assert not store.has(digest(7))
        assert get(store, 7) is None
        assert store.num_rejected == 0
        store.check_integrity()


@pytest.mark.parametrize("place", range(0, FILE_BYTES, 5))
def test_a_changed_byte_anywhere_is_found(tmp_path: Path, place: int) -> None:
    filled(tmp_path, 1)
    content = bytearray(path_of(tmp_path, 0).read_bytes())
    content[place] ^= 0x10
    path_of(tmp_path, 0).write_bytes(content)
    with DiskStore(tmp_path, FINGERPRINT, 100 * FILE_BYTES) as store:
        assert get(store, 0) is None
        assert store.num_rejected == 1
        assert not path_of(tmp_path, 0).exists()
        store.check_integrity()


@pytest.mark.parametrize("length", [0, 10, HEADER.size, FILE_BYTES - 1, FILE_BYTES + 1])
def test_a_file_of_another_length_is_dropped(tmp_path: Path, length: int) -> None:
    filled(tmp_path, 1)
    path_of(tmp_path, 0).write_bytes(path_of(tmp_path, 0).read_bytes().ljust(length, b"x")[:length])
    with DiskStore(tmp_path, FINGERPRINT, 100 * FILE_BYTES) as store:
        assert get(store, 0) is None
        store.check_integrity()


def test_a_page_under_the_name_of_another_is_dropped(tmp_path: Path) -> None:
    filled(tmp_path, 2)
    path_of(tmp_path, 1).write_bytes(path_of(tmp_path, 0).read_bytes())
    with DiskStore(tmp_path, FINGERPRINT, 100 * FILE_BYTES) as store:
        assert get(store, 1) is None
        assert get(store, 0) is not None


def test_a_page_of_another_model_is_never_served(tmp_path: Path) -> None:
    filled(tmp_path, 1)
    with DiskStore(tmp_path, OTHER, 100 * FILE_BYTES) as store:
        assert not store.has(digest(0))
        forged = tmp_path / PageName(OTHER, digest(0), b"").relative_path
        forged.parent.mkdir(parents=True)
        forged.write_bytes(path_of(tmp_path, 0).read_bytes())
        assert get(store, 0) is None


def test_the_limit_holds_and_the_longest_unused_leave_whoever_they_belong_to(tmp_path: Path) -> None:
    filled(tmp_path, 3)
    with DiskStore(tmp_path, OTHER, 4 * FILE_BYTES) as store:
        for number in range(3):
            put(store, number)
            store.check_integrity()
        assert [path_of(tmp_path, number).exists() for number in range(3)] == [False, False, True]


def test_a_smaller_limit_than_before_holds_from_the_start(tmp_path: Path) -> None:
    filled(tmp_path, 5)
    with DiskStore(tmp_path, FINGERPRINT, 2 * FILE_BYTES) as store:
        store.check_integrity()
        assert [store.has(digest(number)) for number in range(5)] == [False] * 3 + [True] * 2


def test_what_was_used_last_is_known_after_a_restart(tmp_path: Path) -> None:
    filled(tmp_path, 3)
    with DiskStore(tmp_path, FINGERPRINT, 3 * FILE_BYTES) as store:
        store.touch([(digest(0), time.time_ns())])
    with DiskStore(tmp_path, FINGERPRINT, 3 * FILE_BYTES) as store:
        put(store, 9)
        assert [store.has(digest(number)) for number in range(3)] == [True, False, True]


def test_a_page_that_was_used_earlier_leaves_earlier_though_it_was_written_later(tmp_path: Path) -> None:
    now = time.time_ns()
    with DiskStore(tmp_path, FINGERPRINT, 2 * FILE_BYTES) as store:
        put(store, 0, now)
        put(store, 1, now - 1)
        store.flush()
        put(store, 2, now + 1)
        store.flush()
        assert [store.has(digest(number)) for number in range(3)] == [True, False, True]


def test_a_page_larger_than_the_limit_is_refused_and_drives_nothing_out(tmp_path: Path) -> None:
    with DiskStore(tmp_path, FINGERPRINT, 2 * FILE_BYTES) as store:
        put(store, 0)
        store.flush()
        assert not store.write(digest(1), b"\1", np.zeros(3 * FILE_BYTES, np.uint8), 1)
        assert store.has(digest(0))


def test_partial_files_go_and_files_of_others_stay(tmp_path: Path) -> None:
    filled(tmp_path, 1)
    partial = path_of(tmp_path, 0).with_suffix(".part")
    partial.write_bytes(b"half")
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "c.page").write_text("mine too")
    with DiskStore(tmp_path, FINGERPRINT, 1) as store:
        assert store.num_bytes == 0
        assert not partial.exists()
        assert (tmp_path / "notes.txt").exists()
        assert (tmp_path / "a" / "b" / "c.page").exists()


def test_a_folder_has_one_owner_at_a_time(tmp_path: Path) -> None:
    with (
        DiskStore(tmp_path, FINGERPRINT, 1),
        pytest.raises(ResourceError, match=r"in use by another ktdesk.*another folder"),
    ):
        DiskStore(tmp_path, FINGERPRINT, 1)
    DiskStore(tmp_path, FINGERPRINT, 1).close()


def test_a_folder_that_cannot_be_made_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ResourceError, match=r"cache folder .*file.* cannot be used: .*; choose another"):
        DiskStore(tmp_path / "file" / "cache", FINGERPRINT, 1)


def test_a_disk_that_refuses_costs_a_page_and_no_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with DiskStore(tmp_path, FINGERPRINT, 10 * FILE_BYTES) as store:
        monkeypatch.setattr(page_writer, "write_page_file", full)
        assert put(store, 0)
        store.flush()
        assert (store.num_failed_writes, store.num_bytes, store.has(digest(0))) == (1, 0, False)
        monkeypatch.undo()
        assert put(store, 0)
        store.check_integrity()


def test_a_write_that_fails_half_way_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "replace", fail)
    name = PageName(FINGERPRINT, digest(0), b"\0")
    with pytest.raises(OSError, match="Input"):
        write_page_file(tmp_path, name, content_of([b"\0"], PAGE_BYTES))
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


KILLED = """
import sys, time
from pathlib import Path
import numpy as np
from ktdesk_engine.prefix_cache.disk_store import DiskStore
from ktdesk_engine.prefix_cache.pages import chained_digest
store = DiskStore(Path(sys.argv[1]), bytes(20), 1 << 30)
print("ready", flush=True)
for number in range(1 << 30):
    key = number.to_bytes(4, "little")
    content = np.full(1 << 20, number % 251, np.uint8)
    while not store.has_room:
        time.sleep(0.001)
    store.write(chained_digest(bytes(20), key), key, content, number + 1)
"""


@pytest.mark.parametrize("seed", range(3))
def test_a_process_killed_while_it_writes_leaves_only_whole_pages(tmp_path: Path, seed: int) -> None:
    process = subprocess.Popen([sys.executable, "-c", KILLED, str(tmp_path)], stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    time.sleep(random.Random(seed).uniform(0.02, 0.2))
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    with DiskStore(tmp_path, bytes(20), 1 << 30) as store:
        store.check_integrity()
        num_good = 0
        for number in range(2000):
            key = number.to_bytes(4, "little")
            content = store.read(chained_digest(bytes(20), key), key, 1 << 20)
            if content is not None:
                assert (content == number % 251).all()
                num_good += 1
        assert store.num_rejected == 0
        assert store.num_bytes == num_good * ((1 << 20) + HEADER.size + 4)
