"""Files from a hub where everything goes wrong that may: they come whole and right, or not at all."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest
from loopback_hub import Asked, Fault, LoopbackHub

from ktdesk_wizard.download.journal import Identity
from ktdesk_wizard.download.origins import Origins, Patience
from ktdesk_wizard.download.part_file import PartFile, PieceLimits
from ktdesk_wizard.download.state import TransferState, Watcher
from ktdesk_wizard.download.transfer import FileTransfer, Transfer
from ktdesk_wizard.errors import FetchError, RefusedError, WrongBytesError
from ktdesk_wizard.hub.http import Http
from ktdesk_wizard.hub.location import RemoteFile
from ktdesk_wizard.hub.sets import gguf_sets
from ktdesk_wizard.hub.sources import find_repository, sources

KIB = 1 << 10
LIMITS = PieceLimits(piece_bytes=64 * KIB, stretch_bytes=16 * KIB, stretch_seconds=0.05, steal_bytes=8 * KIB)
PATIENCE = Patience(
    stall_seconds=0.4, backoff_seconds=0.01, max_backoff_seconds=0.1, give_up_seconds=2, progress_bytes=8 * KIB
)


class Seen(Watcher):
    def __init__(self) -> None:
        self.states: list[TransferState] = []
        self.notes: list[str] = []

    def saw(self, state: TransferState) -> None:
        self.states.append(state)

    def note(self, text: str) -> None:
        self.notes.append(text)


@pytest.fixture
def files(hub: LoopbackHub) -> dict[str, bytes]:
    """Two shards, of random bytes, in the repository o/n."""
    made = {
        f"a-Q8_0-0000{number}-of-00002.gguf": random.Random(number).randbytes(300 * KIB + number) for number in (1, 2)
    }
    for path, data in made.items():
        hub.add("o/n", path, data)
    return made


def remote_files() -> tuple[RemoteFile, ...]:
    return gguf_sets(find_repository(Http(), sources(), "o/n", None).files)[0].files


def transfer(folder: Path, remotes: tuple[RemoteFile, ...], watcher: Watcher, connections: int = 3) -> Transfer:
    http = Http()
    parts = []
    for file in remotes:
        assert file.num_bytes is not None
        part = PartFile(folder / file.path, Identity(file.url, file.num_bytes, file.sha256, None), LIMITS)
        parts.append(FileTransfer(part, Origins(http, [file], PATIENCE)))
    return Transfer(http, parts, lambda file: None, num_connections=connections, patience=PATIENCE, watcher=watcher)


def fetch(folder: Path, connections: int = 3) -> Seen:
    seen = Seen()
    transfer(folder, remote_files(), seen, connections).run()
    return seen


def assert_right(folder: Path, files: dict[str, bytes]) -> None:
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == files


def test_files_come_whole_over_several_connections_without_a_token_for_the_other_host(
    hub: LoopbackHub, files: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    seen = fetch(tmp_path)
    assert_right(tmp_path, files)
    last = seen.states[-1]
    assert last.done_bytes == last.total_bytes == last.checked_bytes == 600 * KIB + 3
    assert last.fetched_bytes >= last.total_bytes  # what two connections divide late comes twice
    assert last.seconds_left == 0
    assert {file.name: file.done_bytes for file in last.files} == {name: len(data) for name, data in files.items()}
    assert all(sum(file.done_bytes for file in state.files) == state.done_bytes for state in seen.states)
    ranges = [asked for asked in hub.bytes_asked() if asked.server == "cdn"]
    assert len(ranges) >= 10
    assert {asked.token for asked in ranges} == {None}


@pytest.mark.parametrize(
    "fault",
    [
        Fault(cut_after=0),
        Fault(cut_after=20 * KIB + 5),
        Fault(stall_after=9 * KIB, stall_seconds=1.0),
        Fault(status=500),
        Fault(status=503, headers=(("Retry-After", "0"),)),
        Fault(status=429, headers=(("Retry-After", "0.1"),)),
        Fault(status=416),
        Fault(status=403),
        Fault(lie=True),
        Fault(claim=5),
        Fault(encoding="gzip"),
        Fault(flip_at=70),
    ],
    ids=repr,
)
def test_what_goes_wrong_with_some_requests_is_made_good(
    hub: LoopbackHub, files: dict[str, bytes], tmp_path: Path, fault: Fault
) -> None:
    hub.faults = [fault, None, fault, None, fault]
    fetch(tmp_path)
    assert_right(tmp_path, files)


def test_a_server_that_ignores_ranges_is_read_over_one_connection(
    hub: LoopbackHub, files: dict[str, bytes], tmp_path: Path
) -> None:
    hub.faults = [None, None, None]  # some pieces come by ranges before
    hub.fault_for = lambda asked: Fault(ignore_range=True)
    fetch(tmp_path)
    assert_right(tmp_path, files)


def test_a_stream_that_is_cut_begins_again_and_keeps_what_it_had(
    hub: LoopbackHub, files: dict[str, bytes], tmp_path: Path
) -> None:
    hub.faults = [Fault(ignore_range=True)] * 3 + [Fault(ignore_range=True, cut_after=200 * KIB)] * 2
    hub.fault_for = lambda asked: Fault(ignore_range=True)
    fetch(tmp_path, connections=1)
    assert_right(tmp_path, files)


def test_an_address_that_ran_out_is_asked_for_again(hub: LoopbackHub, files: dict[str, bytes], tmp_path: Path) -> None:
    def expire(asked: Asked) -> None:
        if asked.start and asked.start > 100 * KIB and not hub.generation:
            hub.generation = 1

    hub.fault_for = expire
    fetch(tmp_path)
    assert_right(tmp_path, files)
    assert sum("/resolve/" in asked.path for asked in hub.asked) > 2


def test_bytes_that_stay_wrong_are_given_up_and_nothing_is_kept(
    hub: LoopbackHub, files: dict[str, bytes], tmp_path: Path
) -> None:
    hub.fault_for = lambda asked: Fault(flip_at=3) if "00001" in asked.path else None
    with pytest.raises(WrongBytesError, match=r"a-Q8_0-00001-of-00002.gguf: fetched 3 times, and its SHA-256 is "):
        fetch(tmp_path)
    assert not (tmp_path / "a-Q8_0-00001-of-00002.gguf").exists()
    assert not (tmp_path / "a-Q8_0-00001-of-00002.gguf.part").exists()


def test_a_mirror_steps_in_where_the_first_source_refuses_or_lies(
    hub: LoopbackHub, files: dict[str, bytes], tmp_path: Path
) -> None:
    good = remote_files()
    http, seen = Http(), Seen()
    file = good[0]
    assert file.num_bytes is not None
    gone = RemoteFile(file.path, f"{hub.url}/o/n/resolve/x/gone.gguf", file.num_bytes, file.sha256, None, "first")
    part = PartFile(tmp_path / file.path, Identity(file.url, file.num_bytes, file.sha256, None), LIMITS)
    one = FileTransfer(part, Origins(http, [gone, file], PATIENCE))
    Transfer(http, [one], lambda file: None, num_connections=2, patience=PATIENCE, watcher=seen).run()
    assert (tmp_path / file.path).read_bytes() == files[file.path]
    assert any("going on with 127.0.0.1" in note for note in seen.notes)


def test_a_gated_file_ends_it_with_what_to_do(hub: LoopbackHub, files: dict[str, bytes], tmp_path: Path) -> None:
    hub.gated.add("o/n")
    with pytest.raises(RefusedError, match="accept its terms there"):
        fetch(tmp_path)


def test_when_nothing_comes_any_more_it_is_told_and_what_came_is_kept(
    hub: LoopbackHub, files: dict[str, bytes], tmp_path: Path
) -> None:
    hub.fault_for = lambda asked: Fault(status=500) if (asked.start or 0) >= 128 * KIB else None
    with pytest.raises(FetchError, match=r"nothing came for 2 s; the last that was heard: .* answered 500"):
        fetch(tmp_path)
    hub.fault_for = lambda asked: None
    seen = fetch(tmp_path)
    assert_right(tmp_path, files)
    assert seen.states[-1].fetched_bytes < 600 * KIB - 64 * KIB


def test_while_it_stalls_the_rate_falls_to_nothing_and_no_time_is_promised(
    hub: LoopbackHub, files: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ktdesk_wizard.download.rate.RateMeter.bytes_s.__defaults__", (0.3,))
    hub.fault_for = lambda asked: Fault(stall_after=1, stall_seconds=1) if (asked.start or 0) >= 64 * KIB else None
    seen = Seen()
    with pytest.raises(FetchError):
        transfer(tmp_path, remote_files(), seen).run()
    silent = [state for state in seen.states if state.quiet_seconds > 0.6]
    assert all(state.seconds_left is None and state.bytes_s == 0 for state in silent)


def test_what_changed_on_the_disk_between_two_runs_is_fetched_again(
    hub: LoopbackHub, files: dict[str, bytes], tmp_path: Path
) -> None:
    hub.fault_for = lambda asked: Fault(status=500) if (asked.start or 0) >= 128 * KIB else None
    with pytest.raises(FetchError):
        fetch(tmp_path)
    part = tmp_path / "a-Q8_0-00001-of-00002.gguf.part"
    data = bytearray(part.read_bytes())
    data[1000:1010] = bytes(10)
    part.write_bytes(data)
    hub.fault_for = lambda asked: None
    seen = fetch(tmp_path)
    assert_right(tmp_path, files)
    assert seen.notes == []  # a stretch alone came again, not the file


@pytest.mark.parametrize("seed", range(3))
def test_faults_at_random_change_nothing_about_the_result(
    hub: LoopbackHub, files: dict[str, bytes], tmp_path: Path, seed: int
) -> None:
    dice = random.Random(seed)
    kinds: list[Callable[[], Fault]] = [
        lambda: Fault(cut_after=dice.randrange(64 * KIB)),
        lambda: Fault(status=dice.choice([500, 502, 503, 403, 408])),
        lambda: Fault(lie=True),
        lambda: Fault(stall_after=dice.randrange(64 * KIB), stall_seconds=0.6),
    ]
    hub.fault_for = lambda asked: dice.choice(kinds)() if dice.random() < 0.4 else None
    fetch(tmp_path, connections=4)
    assert_right(tmp_path, files)
