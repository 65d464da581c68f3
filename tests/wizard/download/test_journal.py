"""The journal, cut off and spoiled at any byte: what it then says was true at some time, or it says nothing."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ktdesk_wizard.download.journal import Identity, Journal, Stretch, read_journal

FILE = Identity("https://hub/a.gguf", 1000, "ab" * 32, "etag")
Written = list[tuple[int, int]]
stretches = st.lists(st.tuples(st.integers(0, 900), st.integers(1, 100)), max_size=12)


def stretch(start: int, length: int) -> Stretch:
    return Stretch(start, start + length, f"{start * 1000 + length:016x}")


def write(path: Path, written: Written, dropped: int) -> list[set[Stretch]]:
    """What was true after each line."""
    journal = Journal(path, FILE)
    states: list[set[Stretch]] = [set()]
    now: dict[int, Stretch] = {}
    for start, length in written:
        journal.wrote([stretch(start, length)])
        now[start] = stretch(start, length)
        states.append(set(now.values()))
    for gone in list(now.values())[:dropped]:
        journal.dropped([gone])
        del now[gone.start]
        states.append(set(now.values()))
    journal.close()
    return states


@given(stretches, st.integers(0, 3), st.data())
def test_a_torn_journal_says_what_was_true_before(written: Written, dropped: int, data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "journal"
        states = write(path, written, dropped)
        whole = path.read_bytes()
        cut = data.draw(st.integers(0, len(whole)))
        path.write_bytes(whole[:cut])
        identity, found = read_journal(path)
        assert set(found) in states
        assert identity == (FILE if cut > whole.index(b"\n") else None)


@given(stretches, st.data())
def test_a_spoiled_byte_ends_what_counts(written: Written, data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "journal"
        states = write(path, written, 0)
        whole = bytearray(path.read_bytes())
        whole[data.draw(st.integers(0, len(whole) - 1))] ^= data.draw(st.integers(1, 255))
        path.write_bytes(whole)
        assert set(read_journal(path)[1]) in states


@given(stretches, st.integers(0, 200))
def test_writing_goes_on_after_a_torn_line(written: Written, cut: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "journal"
        write(path, written, 0)
        whole = path.read_bytes()
        path.write_bytes(whole[: max(len(whole) - cut, 0)])
        journal = Journal(path, FILE)
        before = set(journal.stretches)
        journal.wrote([stretch(950, 7)])
        journal.close()
        assert set(read_journal(path)[1]) == before | {stretch(950, 7)}


@pytest.mark.parametrize(
    "other",
    [
        Identity("https://hub/a.gguf", 1001, "ab" * 32, "etag"),
        Identity("https://hub/a.gguf", 1000, "cd" * 32, "etag"),
        Identity("https://hub/a.gguf", 1000, None, "etag"),
    ],
)
def test_the_journal_of_another_file_is_begun_anew(tmp_path: Path, other: Identity) -> None:
    write(tmp_path / "journal", [(0, 10)], 0)
    journal = Journal(tmp_path / "journal", other)
    journal.close()
    assert journal.stretches == ()
    assert read_journal(tmp_path / "journal") == (other, [])


def test_the_same_hash_is_the_same_file_wherever_it_is_from(tmp_path: Path) -> None:
    write(tmp_path / "journal", [(0, 10)], 0)
    journal = Journal(tmp_path / "journal", Identity("https://mirror/a.gguf", 1000, "ab" * 32, None))
    journal.close()
    assert journal.stretches == (stretch(0, 10),)


def test_without_a_hash_only_the_same_etag_is_the_same_file() -> None:
    file = Identity("https://host/a", 10, None, "v1")
    assert file.is_same_file(Identity("https://host/a", 10, None, "v1"))
    assert not file.is_same_file(Identity("https://host/a", 10, None, "v2"))
    assert not Identity("u", 10, None, None).is_same_file(Identity("u", 10, None, None))
