"""`run` and `chat` start a server where none has the model, and it leaves by itself."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from running import RunKtdesk, StartKtdesk
from serving import number as metric

from ktdesk.exit_codes import ExitCode
from ktdesk.options import EngineOptions
from ktdesk.server_records import ServerRecord, running_servers, stop_server
from ktdesk.settings import KEY_VARIABLE, Settings
from ktdesk.starting import _arguments

OPTIONS = ("--max-tokens", "6", "--temperature", "0", "--threads", "1", "--compute", "int8")


def servers() -> list[ServerRecord]:
    return running_servers(Settings(home=os.environ["KTDESK_HOME"]))


def wait_until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.fixture(autouse=True)
def _stop_all() -> Iterator[None]:
    yield
    for record in servers():
        assert stop_server(record, 30)


def test_the_first_starts_a_server_and_the_second_asks_it(
    ktdesk: RunKtdesk, talker: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(KEY_VARIABLE, "not for this server")
    first = ktdesk("run", talker, "the cat", *OPTIONS, "--keep-alive", "60")
    assert first.code == 0, first.err
    [record] = servers()
    assert record.url in first.err
    again = ktdesk("run", talker, "the cat", *OPTIONS, "--keep-alive", "60")
    chat = ktdesk("chat", talker, *OPTIONS, "--keep-alive", "60", stdin="the cat\n")
    assert servers() == [record]
    assert first.out == again.out == chat.out == ktdesk("run", talker, "the cat", *OPTIONS, "--no-server").out


@pytest.mark.parametrize("command", ["run", "chat"])
def test_options_that_are_refused_start_no_server(ktdesk: RunKtdesk, talker: Path, command: str) -> None:
    refused = ktdesk(command, talker, "--temperature", "-1", "--keep-alive", "60", stdin="the cat\n")
    assert refused.code == ExitCode.USAGE
    assert refused.err == f"{refused.error}\n"
    assert servers() == []


def test_a_server_of_odd_options_is_for_who_gave_them(ktdesk: RunKtdesk, talker: Path) -> None:
    """Else one question with a small context would spoil all that come after it."""
    odd = ("--context", "64", "--threads", "1", "--keep-alive", "60", "--max-tokens", "2")
    assert ktdesk("run", talker, "the cat", *odd).code == 0
    plain = ktdesk("run", talker, "the cat", "--max-tokens", "2", "--keep-alive", "60")
    assert plain.code == 0, plain.err
    assert sorted(len(record.changed) for record in servers()) == [0, 2]
    again = ktdesk("run", talker, "the cat", *odd)
    [record] = [record for record in servers() if record.changed]
    assert f"asking the server at {record.url}, run with --context 64 --threads 1" in again.err


def test_two_at_once_start_one_server(start_ktdesk: StartKtdesk, talker: Path) -> None:
    processes = [start_ktdesk("run", talker, "the cat", *OPTIONS, "--keep-alive", "60") for _ in range(2)]
    said = [process.communicate("", timeout=120) for process in processes]
    assert [process.returncode for process in processes] == [0, 0], said
    assert said[0][0] == said[1][0]
    assert len(servers()) == 1


def test_the_server_leaves_by_itself(ktdesk: RunKtdesk, talker: Path) -> None:
    assert ktdesk("run", talker, "the cat", *OPTIONS, "--keep-alive", "0.2").code == 0
    wait_until(lambda: not servers())


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (("--context", "9999999"), ExitCode.USAGE, "9999999 tokens"),
        (("--isa", "quantum"), ExitCode.USAGE, "quantum"),
    ],
)
def test_what_keeps_the_server_from_loading_is_told_as_if_there_were_none(
    ktdesk: RunKtdesk, talker: Path, arguments: tuple[str, ...], code: ExitCode, told: str
) -> None:
    alone = ktdesk("run", talker, "x", *arguments, "--no-server")
    result = ktdesk("run", talker, "x", *arguments, "--keep-alive", "60")
    assert result.code == alone.code == code
    assert told in result.error
    assert result.error == alone.error
    assert not servers()


def test_a_file_that_is_no_model_is_told_the_same(ktdesk: RunKtdesk, tmp_path: Path) -> None:
    path = tmp_path / "page.gguf"
    path.write_text("<!DOCTYPE html>")
    result = ktdesk("run", path, "x", "--keep-alive", "60")
    assert result.code == ExitCode.MODEL_FILE
    assert "web page" in result.error


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, ExitCode.INTERRUPTED), (None, ExitCode.OUTPUT_CLOSED)])
def test_who_leaves_frees_the_place_at_the_server(
    start_ktdesk: StartKtdesk, talker: Path, number: signal.Signals | None, code: ExitCode
) -> None:
    with start_ktdesk("run", talker, "x", "--temperature", "0", "--keep-alive", "60") as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.close()
        assert process.stdout.read(1)
        if number is None:
            process.stdout.close()
        else:
            process.send_signal(number)
        assert process.wait(60) == code
    [server] = servers()
    wait_until(lambda: metric(server.url, "num_decoding") == 0)
    assert metric(server.url, "cancelled_total") == 1


def test_without_a_folder_for_servers_the_model_is_loaded_here(
    ktdesk: RunKtdesk, talker: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    with monkeypatch.context() as changed:
        changed.setenv("KTDESK_HOME", str(tmp_path / "file"))
        result = ktdesk("run", talker, "the cat", *OPTIONS, "--keep-alive", "60")
    assert result.code == 0, result.err
    assert "loaded here" in result.err


def test_every_option_of_the_engine_is_handed_on() -> None:
    options = EngineOptions(
        context=300,
        threads=2,
        compute="int8",
        isa="avx2",
        cache_type="f16",
        experts=1,
        deterministic=True,
        program=False,
    )
    assert " ".join(_arguments(options)) == (
        "--context 300 --threads 2 --compute int8 --isa avx2 --cache-type f16 --experts 1 --deterministic --no-program"
    )
    assert not list(_arguments(EngineOptions()))
