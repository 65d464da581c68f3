"""`run` and `chat` at a server that has the model: what they say is what they say without one."""

from __future__ import annotations

import json
import math
import os
import shutil
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import psutil
import pytest
from gguf import GGUFWriter
from running import RunKtdesk, StartKtdesk
from serving import RunningServer, running_server, server_process

from ktdesk import finding
from ktdesk.asking import Asked
from ktdesk.errors import ServerGoneError
from ktdesk.event_facts import event_of, facts_of
from ktdesk.exit_codes import ExitCode
from ktdesk.options import AnswerOptions, EngineOptions, SamplingOptions
from ktdesk.server.settings import ServerSettings
from ktdesk.server_client import ServerModel
from ktdesk.server_records import ServerRecord, write_record
from ktdesk.settings import KEY_VARIABLE, Settings
from ktdesk_engine.answer import StreamEvent, Timings
from ktdesk_engine.config import EngineConfig
from ktdesk_engine.errors import ContextOverflowError
from ktdesk_engine.sampler import TokenLogprobs

SHORT = ("--max-tokens", "6", "--temperature", "0")
LOCAL = ("--no-server", "--compute", "int8")
"""As the servers of these tests compute."""
TIMES = ("prefill_seconds", "decode_seconds", "prefill_tok_s", "decode_tok_s", "load_seconds", "engine")


def record(
    server: RunningServer, options: EngineOptions | None = None, *, needs_key: bool = False, log: str = ""
) -> None:
    """Lists the server as one that runs."""
    port = int(server.url.rpartition(":")[2])
    started = psutil.Process().create_time()
    path = str(server.host.path)
    facts = asdict(options or EngineOptions())
    entry = ServerRecord(os.getpid(), started, server.url, port, server.model, path, log, needs_key, facts)
    write_record(Settings(home=os.environ["KTDESK_HOME"]), entry)


@pytest.fixture(scope="module")
def served(talker: Path) -> Iterator[RunningServer]:
    yield from running_server(talker, ServerSettings(port=0, finish_seconds=1))


@pytest.fixture
def listed(served: RunningServer) -> RunningServer:
    record(served)
    return served


def num_answered(server: RunningServer) -> float:
    return server.host.models[0].answers.numbers()["finished_total"]


def facts(ktdesk: RunKtdesk, *arguments: str | Path) -> dict[str, Any]:
    result = ktdesk("run", *arguments, "--json")
    assert result.code == 0, result.err
    return {name: value for name, value in json.loads(result.out).items() if name not in TIMES}


@pytest.mark.parametrize(
    "options",
    [
        ("the cat", *SHORT),
        ("the cat", "--raw", *SHORT, "--logprobs", "3"),
        ("the cat", "--temperature", "1.5", "--max-tokens", "20", "--system", "Be brief."),
        ("the cat", "--raw", "--temperature", "0", "--stop", "a", "--stop", "e", "--max-tokens", "50"),
    ],
)
def test_a_server_says_what_would_be_said_without_it(
    ktdesk: RunKtdesk, listed: RunningServer, talker: Path, options: tuple[str, ...]
) -> None:
    seeded = (*options, "--seed", "7")
    before = num_answered(listed)
    assert facts(ktdesk, talker, *seeded) == facts(ktdesk, talker, *seeded, *LOCAL)
    assert num_answered(listed) == before + 1


def test_the_answer_is_on_standard_output_and_the_server_is_named_beside_it(
    ktdesk: RunKtdesk, listed: RunningServer, talker: Path
) -> None:
    result = ktdesk("run", talker, "the cat", *SHORT)
    assert len(result.out) == 7
    assert listed.url in result.err
    assert "6 answer tokens" in result.err


def test_a_chat_goes_on_at_the_server(ktdesk: RunKtdesk, listed: RunningServer, talker: Path) -> None:
    before = num_answered(listed)
    lines = "the cat\nthe dog\n/retry\n/quit\n"
    result = ktdesk("chat", talker, *SHORT, stdin=lines)
    assert result.code == 0
    assert num_answered(listed) == before + 3
    assert result.out == ktdesk("chat", talker, *SHORT, *LOCAL, stdin=lines).out


def test_a_system_prompt_of_run_is_pinned(ktdesk: RunKtdesk, talker: Path) -> None:
    for server in running_server(talker, ServerSettings(port=0), EngineConfig(num_threads=1, context=1024)):
        record(server)
        assert ktdesk("run", talker, "the cat", *SHORT, "--system", "b" * 200).code == 0
        assert server.host.models[0].answers.numbers()["cache_num_pinned_pages"] == 3


def test_errors_of_a_request_end_as_without_a_server(
    ktdesk: RunKtdesk, model_with: Callable[[Callable[[GGUFWriter], None]], Path]
) -> None:
    path = model_with(lambda writer: writer.add_chat_template("{{ raise_exception('not today') }}"))
    for server in running_server(path, ServerSettings(port=0), EngineConfig(num_threads=1, context=64)):
        record(server)
        for arguments, told in ((("x",), "not today"), (("--raw", "x" * 64), "64 tokens")):
            result = ktdesk("run", path, *arguments)
            assert result.code == ExitCode.REQUEST
            assert told in result.error


@pytest.mark.parametrize("options", [("--context", "300"), ("--compute", "float32"), ("--threads", "1")])
def test_a_server_that_is_run_in_another_way_is_not_asked(
    ktdesk: RunKtdesk, listed: RunningServer, talker: Path, options: tuple[str, ...]
) -> None:
    before = num_answered(listed)
    assert ktdesk("run", talker, "x", *SHORT, *options).code == 0
    assert num_answered(listed) == before


def test_a_server_that_is_run_in_the_same_way_is_asked(ktdesk: RunKtdesk, served: RunningServer, talker: Path) -> None:
    record(served, EngineOptions(context=300))
    before = num_answered(served)
    assert ktdesk("run", talker, "x", *SHORT, "--context", "300").code == 0
    assert num_answered(served) == before + 1


def test_a_server_of_another_model_is_not_asked(
    ktdesk: RunKtdesk, listed: RunningServer, tiny_model: Callable[[str], Path]
) -> None:
    result = ktdesk("run", tiny_model("qwen3moe"), "x", *SHORT)
    assert result.code == 0
    assert listed.url not in result.err


def test_a_server_is_found_by_another_model_that_it_has_in_memory(
    ktdesk: RunKtdesk, talker: Path, tmp_path: Path
) -> None:
    log, other = tmp_path / "server.log", Path(shutil.copy(talker, tmp_path / "other.gguf"))
    log.write_text("what it said")
    for server in running_server(talker, ServerSettings(port=0, max_models=2), others=[other]):
        record(server, log=str(log))
        assert server.url not in ktdesk("run", other, "x", *SHORT).err  # it could load it, but has it not
        list(ServerModel(server.url, name="other").stream(Asked("x", AnswerOptions(max_tokens=2), SamplingOptions())))
        has = {model.name: model for model in server.host.models}
        wishes = ("--raw", *SHORT, "--seed", "7", "--logprobs", "2")
        for name in (other, "other", "OTHER"):
            before = has["other"].answers.numbers()["finished_total"]
            assert facts(ktdesk, name, "the cat", *wishes) == facts(ktdesk, other, "the cat", *wishes, *LOCAL)
            assert has["other"].answers.numbers()["finished_total"] == before + 1
        assert f"did you mean {other}?" in ktdesk("run", "othr", "x").error
        assert ktdesk("logs", "Other.gguf").out == ktdesk("logs", "talker").out == "what it said"
        result = ktdesk("stop", "other")
        port = server.url.rpartition(":")[2]
        assert result.code == ExitCode.USAGE
        assert f"on port {port} (talker, other): `ktdesk stop {port}` ends it with all of them" in result.error
        assert f"running: {port} (talker, other)" in ktdesk("stop", "nosuch").error


def test_what_was_cached_of_a_prompt_is_said(ktdesk: RunKtdesk, talker: Path) -> None:
    for server in running_server(talker, ServerSettings(port=0), EngineConfig(num_threads=1, context=2048)):
        record(server)
        question = ("run", talker, "b" * 1100, *SHORT, "--raw")
        assert "cached" not in ktdesk(*question).err
        asked = json.loads(ktdesk(*question, "--json").out)
        assert asked["num_cached_tokens"] > 0
        told = f"{asked['num_prompt_tokens']:,} prompt tokens ({asked['num_cached_tokens']:,} cached) in "
        assert told in ktdesk(*question).err


def test_a_key_is_taken_from_the_environment(ktdesk: RunKtdesk, talker: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for server in running_server(talker, ServerSettings(port=0, api_key="the key")):
        record(server, needs_key=True)
        assert server.url not in ktdesk("run", talker, "x", *SHORT).err
        monkeypatch.setenv(KEY_VARIABLE, "the key")
        assert server.url in ktdesk("run", talker, "x", *SHORT).err
        monkeypatch.setenv(KEY_VARIABLE, "another")
        assert "key is missing or wrong" in ktdesk("run", talker, "x", *SHORT).error


def test_closing_the_stream_cancels_at_the_server(listed: RunningServer) -> None:
    stream = ServerModel(listed.url).stream(Asked("the cat", AnswerOptions(), SamplingOptions(temperature=0)))
    assert next(stream).text
    stream.close()
    deadline = time.monotonic() + 20
    while listed.host.models[0].answers.numbers()["num_decoding"]:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_the_servers_own_limits_hold(talker: Path) -> None:
    settings = ServerSettings(port=0, max_prompt_tokens=20, max_output_tokens=3)
    for server in running_server(talker, settings):
        model = ServerModel(server.url)
        events = list(model.stream(Asked("the cat", AnswerOptions(max_tokens=9), SamplingOptions())))
        assert len(events) == 3
        with pytest.raises(ContextOverflowError, match="at most 20"):
            list(model.stream(Asked("x" * 30, AnswerOptions(), SamplingOptions())))


def test_a_server_that_dies_is_said_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    line = json.dumps(facts_of(StreamEvent("a", (1,)))).encode() + b"\n"
    replies = [
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n" % (len(line), line),
    ]
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            for reply in replies:
                connection, _ = listener.accept()
                with connection:
                    connection.recv(10_000)
                    connection.sendall(reply)

        thread = threading.Thread(target=answer)
        thread.start()
        stream = ServerModel(f"http://127.0.0.1:{listener.getsockname()[1]}").stream(
            Asked("x", AnswerOptions(), SamplingOptions())
        )
        assert next(stream).text == "a"
        with pytest.raises(ServerGoneError, match="ktdesk logs"):
            next(stream)
        thread.join()


def test_an_event_is_the_same_after_its_way_through_json() -> None:
    entry = TokenLogprobs(3, -math.inf, ((1, -0.5), (3, -math.inf)))
    for event in (
        StreamEvent("\u00e4\n", (3,), (entry,)),
        StreamEvent("", (), finish_reason="stop", timings=Timings(1, 2, 0.5, 0.25, seed=2**64 - 1)),
    ):
        assert event_of(json.loads(json.dumps(facts_of(event), allow_nan=False))) == event


def test_a_server_that_still_loads_is_waited_for(
    served: RunningServer, monkeypatch: pytest.MonkeyPatch, talker: Path
) -> None:
    record(served)
    states = iter([("loading", 10.0), ("loading", 60.0), ("ready", 100.0)])
    monkeypatch.setattr(finding, "_health", lambda url: next(states))
    settings = Settings(home=os.environ["KTDESK_HOME"])
    with finding.asked_model(talker, settings, EngineOptions()) as model:
        assert isinstance(model, ServerModel)
    assert next(states, None) is None


def test_a_server_that_nobody_asks_leaves_by_itself(start_ktdesk: StartKtdesk, talker: Path) -> None:
    with server_process(start_ktdesk, talker, "--keep-alive", "1.5") as (process, _):
        assert process.wait(30) == 0
