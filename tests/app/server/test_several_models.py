"""One server, several models: one at a time by default, each loaded when it is asked for."""

from __future__ import annotations

import asyncio
import itertools
import json
import random
import shutil
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import httpx
import ollama
import pytest
from openai import OpenAI
from running import RunKtdesk, StartKtdesk
from serving import RunningServer, running_server, server_process

from ktdesk.errors import UsageError
from ktdesk.exit_codes import ExitCode
from ktdesk.server import hosting
from ktdesk.server.errors import BadRequestError, NotFoundError, NotReadyError
from ktdesk.server.hosting import ModelHost
from ktdesk.server.known_models import KnownModel, KnownModels
from ktdesk.server.memory_guard import MemoryGuard, own_bytes
from ktdesk.server.opening import OpenSettings
from ktdesk.server.settings import ServerSettings
from ktdesk.server.turns import Line, Ticket
from ktdesk_engine.config import EngineConfig
from ktdesk_wizard.probe.fact import reported
from ktdesk_wizard.probe.machine_facts import MachineFacts
from ktdesk_wizard.probe.probe import probe
from ktdesk_wizard.store.names import title_of

HOW = OpenSettings(EngineConfig(compute="int8", num_threads=1, context=512))


@pytest.fixture(scope="module")
def files(talker: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Three models: a, b and c."""
    folder = tmp_path_factory.mktemp("several")
    return [Path(shutil.copy(talker, folder / f"{name}.gguf")) for name in "abc"]


@pytest.fixture
def server(files: list[Path]) -> Iterator[RunningServer]:
    yield from running_server(files[0], ServerSettings(port=0, finish_seconds=1), HOW.config, others=files[1:])


def ask(server: RunningServer, model: str, **wishes: Any) -> httpx.Response:
    body = {"model": model, "prompt": "x", "max_tokens": 2, "temperature": 0, **wishes}
    return httpx.post(f"{server.url}/v1/completions", json=body, timeout=60)


def in_memory(server: RunningServer) -> list[str]:
    return [model["name"] for model in httpx.get(f"{server.url}/health").json()["models"]]


def test_a_model_is_loaded_for_who_asks_for_it_and_the_other_leaves(server: RunningServer) -> None:
    answers = [ask(server, name).json()["choices"][0]["text"] for name in ("a", "b", "a")]
    assert len(set(answers)) == 1
    assert in_memory(server) == ["a"]
    api = OpenAI(base_url=f"{server.url}/v1", api_key="none")
    assert {model.id: model.model_extra and model.model_extra["status"] for model in api.models.list()} == {
        "a": "ready",
        "b": "on disk",
        "c": "on disk",
    }
    tags = httpx.get(f"{server.url}/api/tags").json()["models"]
    assert [(tag["name"], tag["details"]["family"]) for tag in tags] == [(name, "llama") for name in "abc"]
    assert [model["name"] for model in httpx.get(f"{server.url}/api/ps").json()["models"]] == ["a"]
    assert httpx.post(f"{server.url}/api/show", json={"model": "c"}).json()["details"]["family"] == "llama"
    assert in_memory(server) == ["a"]


@pytest.fixture
def impatient(files: list[Path]) -> Iterator[RunningServer]:
    settings = ServerSettings(port=0, finish_seconds=1, turn_wait_seconds=0)
    yield from running_server(files[0], settings, HOW.config, others=files[1:])


@contextmanager
def in_use(server: RunningServer, name: str) -> Iterator[None]:
    """As long as this lasts, the model stays."""
    with ExitStack() as uses:
        assert server.host.held(uses, server.host.known.find(name)) is not None
        yield


def test_who_asks_while_another_model_answers_is_told_so_at_once_where_nobody_may_wait(
    impatient: RunningServer,
) -> None:
    server = impatient
    with in_use(server, "a"):
        for path, asked in (("/v1/chat/completions", {}), ("/v1/messages", {"max_tokens": 3}), ("/api/chat", {})):
            messages = {"model": "b", "messages": [{"role": "user", "content": "hi"}]}
            refused = httpx.post(f"{server.url}{path}", json={**messages, **asked})
            assert refused.status_code == 503
            assert int(refused.headers["Retry-After"]) >= 1
            assert "a is answering" in json.dumps(refused.json()["error"])
    deadline = time.monotonic() + 30
    while ask(server, "b").status_code != 200:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert in_memory(server) == ["b"]


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The models that were loaded, in order."""
    opens, names = hosting.open_model, []

    def noted(path: Path, *arguments: Any) -> Any:
        names.append(path.stem)
        return opens(path, *arguments)

    monkeypatch.setattr(hosting, "open_model", noted)
    return names


def wait_for_line(server: RunningServer, count: int) -> None:
    deadline = time.monotonic() + 30
    while server.host.num_in_line != count:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_who_waits_for_another_model_comes_before_those_who_ask_later(server: RunningServer, loads: list[str]) -> None:
    """And all who wait for the same model are answered together, rather than the models taking turns for each."""
    with ThreadPoolExecutor(4) as pool:
        with in_use(server, "a"):
            asked = []
            for count, name in enumerate("bacb", start=1):
                asked.append(pool.submit(ask, server, name))
                wait_for_line(server, count)
            assert "ktdesk_http_waiting_for_model 4\n" in httpx.get(f"{server.url}/metrics").text
            assert not any(one.done() for one in asked)
        assert [one.result().status_code for one in asked] == [200] * 4
    assert loads == ["b", "a", "c"]


def test_who_leaves_the_line_holds_nobody_up(server: RunningServer, loads: list[str]) -> None:
    body = b'{"model": "b", "prompt": "x"}'
    head = f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
    with ThreadPoolExecutor(1) as pool, in_use(server, "a"):
        with socket.create_connection(("127.0.0.1", int(server.url.rpartition(":")[2]))) as leaving:
            leaving.sendall(head.encode() + body)
            wait_for_line(server, 1)
            behind = pool.submit(ask, server, "a")
            wait_for_line(server, 2)
        assert behind.result().status_code == 200
    assert loads == []


def test_a_deadline_counts_the_time_in_line(server: RunningServer) -> None:
    with in_use(server, "a"):
        assert ask(server, "b", deadline_seconds=0.1).status_code == 504
        assert server.host.num_in_line == 0


def test_who_waits_in_line_is_told_when_the_server_ends(server: RunningServer) -> None:
    with ThreadPoolExecutor(1) as pool, in_use(server, "a"):
        waiting = pool.submit(ask, server, "b")
        wait_for_line(server, 1)
        server.server.stop()
        told = waiting.result()
    assert (told.status_code, told.json()["error"]["code"]) == (503, "stopping")


def test_turns_are_taken_in_the_order_of_asking_and_a_model_at_a_time() -> None:
    """The same against a plain list of who came when, under random arrivals, turns and leavings."""
    asyncio.run(check_line(random.Random(7)))


async def check_line(chance: random.Random) -> None:
    models = [KnownModel(name, Path(name), 0) for name in "abc"]
    line, waiting = Line(), []
    for _ in range(2000):
        if chance.random() < 0.5 or not waiting:
            waiting.append(Ticket(chance.choice(models)))
            line.join(waiting[-1])
        elif chance.random() < 0.3:
            line.leave(waiting.pop(chance.randrange(len(waiting))))
        else:
            line.call(waiting[0].path)
            called = [ticket for ticket in waiting if ticket.path == waiting[0].path]
            assert all(ticket.is_called and line.before(ticket) is None for ticket in called)
            for ticket in called:
                line.leave(ticket)
            waiting = [ticket for ticket in waiting if ticket not in called]
        _, first = next(itertools.groupby(waiting, lambda ticket: ticket.path), ("", ()))
        assert [ticket for ticket in waiting if line.before(ticket) is None] == list(first)


def test_all_who_ask_for_a_model_that_loads_get_their_answers(server: RunningServer) -> None:
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda _: ask(server, "b"), range(4)))
    assert [answer.status_code for answer in answers] == [200] * 4


def test_a_model_leaves_when_ollamas_client_lets_it_go_and_comes_back(server: RunningServer) -> None:
    with closing(ollama.Client(server.url, timeout=60)) as client:
        assert client.generate(model="a", keep_alive=0).done_reason == "unload"
        assert in_memory(server) == []
        assert client.generate(model="a", prompt="x", keep_alive=0, options={"num_predict": 1}).response
        with in_use(server, "a"), pytest.raises(ollama.ResponseError, match="stays") as refused:
            client.generate(model="a", keep_alive="0s")
    assert refused.value.status_code == 503
    assert in_memory(server) == ["a"]


def test_who_looks_whether_somebody_is_there_is_answered(server: RunningServer) -> None:
    assert httpx.get(f"{server.url}/").text == "ktdesk is running\n"
    assert httpx.head(server.url).status_code == 200


def test_with_room_for_two_the_longest_unused_leaves(files: list[Path]) -> None:
    settings = ServerSettings(port=0, max_models=2)
    for server in running_server(files[0], settings, HOW.config, others=files[1:]):
        for name, held in (("b", "ab"), ("a", "ab"), ("c", "ac")):
            assert ask(server, name).status_code == 200
            assert sorted(in_memory(server)) == list(held)
        lines = httpx.get(f"{server.url}/metrics").text.splitlines()
        assert {line.partition(" ")[0] for line in lines if line.startswith("ktdesk_finished_total")} == {
            'ktdesk_finished_total{model="a"}',
            'ktdesk_finished_total{model="c"}',
        }


def test_of_several_those_leave_that_nobody_asks(files: list[Path]) -> None:
    for server in running_server(files[0], ServerSettings(port=0, max_models=2), HOW.config, others=files[1:]):
        ask(server, "b")
        server.host.close_unused(1000.0)
        assert len(in_memory(server)) == 2
        server.host.close_unused(0.0)
        assert in_memory(server) == ["b"]


def test_a_damaged_model_is_refused_with_its_reason_and_the_server_goes_on(talker: Path, tmp_path: Path) -> None:
    damaged = tmp_path / "damaged.gguf"
    damaged.write_bytes(talker.read_bytes()[:5000])
    for server in running_server(talker, ServerSettings(port=0), HOW.config, others=[damaged]):
        answer = ask(server, "damaged")
        assert answer.status_code == 503
        assert "damaged cannot be loaded" in answer.json()["error"]["message"]
        assert ask(server, "talker").status_code == 200


def test_a_deadline_counts_the_loading(impatient: RunningServer, monkeypatch: pytest.MonkeyPatch) -> None:
    server = impatient
    may_open, opens = threading.Event(), hosting.open_model

    def waits(*arguments: Any) -> Any:
        may_open.wait(30)
        return opens(*arguments)

    monkeypatch.setattr(hosting, "open_model", waits)
    late = ask(server, "b", deadline_seconds=0.2)
    assert late.status_code == 504
    assert "b loads" in ask(server, "c").json()["error"]["message"]
    assert httpx.get(f"{server.url}/health").json()["models"] == [
        {"name": "b", "stage": "loading", "percent": 0.0, "reason": None}
    ]
    may_open.set()
    assert ask(server, "b").status_code == 200


def test_a_path_is_no_name(server: RunningServer, files: list[Path]) -> None:
    for name in (str(files[1]), f"../several/{files[1].name}", "b/../b", ".", ""):
        assert ask(server, name).status_code == 404, name
    assert httpx.get(f"{server.url}/v1/models/{files[1]}").status_code == 404
    assert ask(server, "B.gguf").status_code == 200


# Names.


def test_folders_are_looked_into_again_when_a_name_is_not_known(talker: Path, tmp_path: Path) -> None:
    known = KnownModels([talker], [tmp_path])
    with pytest.raises(NotFoundError, match="these are: talker"):
        known.find("later")
    shutil.copy(talker, tmp_path / "later.gguf")
    assert known.find("later").path == tmp_path / "later.gguf"
    assert [model.name for model in known.all()] == ["talker", "later"]


def test_files_of_the_same_name_get_longer_ones(tmp_path: Path, talker: Path) -> None:
    paths = [tmp_path / folder / "same.gguf" for folder in ("one", "two", "three/two")]
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(talker, path)
    known = KnownModels(paths)
    assert [model.name for model in known.all()] == ["same", "two/same", "two/same-2"]
    assert known.find("two/same").path == paths[1]


def test_a_file_that_is_named_twice_is_one_model(talker: Path) -> None:
    known = KnownModels([talker, talker])
    assert known.find("TALKER:latest").path == talker
    assert len(known.all()) == 1


def test_a_named_file_is_called_as_its_folder_calls_it_and_its_own_name_and_title_mean_it_too(
    talker: Path, tmp_path: Path
) -> None:
    (tmp_path / "demo").mkdir()
    path = Path(shutil.copy(talker, tmp_path / "demo" / "some-moe.gguf"))
    known = KnownModels([path], [tmp_path])
    assert known.own.name == "demo"
    assert [model.name for model in known.all()] == ["demo"]
    title = title_of(talker)
    assert title is not None
    for name in ("some-moe", "SOME-MOE.gguf", title, title.upper()):
        assert known.find(name) == known.own
    assert KnownModels([talker]).find(title).path == talker


def test_a_body_that_is_called_a_form_is_read_as_json(server: RunningServer) -> None:
    """As `curl -d` sends it."""
    form = {"content-type": "application/x-www-form-urlencoded"}
    body = json.dumps({"model": "a", "prompt": "x", "stream": False, "options": {"num_predict": 2}})
    answer = httpx.post(f"{server.url}/api/generate", content=body, headers=form, timeout=60)
    assert answer.status_code == 200
    assert answer.json()["done"]
    stranger = {**form, "origin": "http://evil.example"}
    assert httpx.post(f"{server.url}/api/generate", content=body, headers=stranger).status_code == 403


def test_a_link_to_a_named_file_is_no_second_model(tmp_path: Path, talker: Path) -> None:
    (tmp_path / "link.gguf").symlink_to(talker)
    assert [model.name for model in KnownModels([talker], [tmp_path]).all()] == ["link"]


def test_a_name_that_may_mean_two_is_refused(tmp_path: Path, talker: Path) -> None:
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        shutil.copy(talker, tmp_path / folder / "same.gguf")
    with pytest.raises(BadRequestError, match="one/same or two/same"):
        KnownModels([talker], [tmp_path]).find("same")


# Memory.


def facts_with(available_bytes: int) -> MachineFacts:
    facts = probe(Path("/"))
    memory = facts.memory.__class__(
        **{
            **vars(facts.memory),
            "available_bytes": reported(available_bytes, "a test"),
            "total_bytes": reported(available_bytes, "a test"),
        }
    )
    return facts.__class__(**{**vars(facts), "memory": memory})


def test_what_does_not_fit_is_refused_and_nobody_leaves_for_it(files: list[Path]) -> None:
    guard = MemoryGuard(HOW)
    host = ModelHost(KnownModels(files), ServerSettings(max_models=2), HOW, guard=guard)

    async def use(name: str) -> None:
        with ExitStack() as uses:
            await host.model(uses, name)

    asyncio.run(use("a"))
    guard._facts = lambda folder: facts_with(-own_bytes())  # type: ignore[method-assign]
    with pytest.raises(NotReadyError, match=r"b cannot be loaded: it needs .* GiB"):
        asyncio.run(use("b"))
    assert list(host.healths) == ["a"]
    host.close()


def test_a_model_leaves_where_that_makes_room(files: list[Path]) -> None:
    guard = MemoryGuard(HOW)
    host = ModelHost(KnownModels(files), ServerSettings(max_models=2), HOW, guard=guard)
    needed: list[int] = []

    async def use(name: str) -> None:
        with ExitStack() as uses:
            await host.model(uses, name)

    asyncio.run(use("a"))
    needed += guard._needed_bytes.values()
    guard._facts = lambda folder: facts_with(int(1.5 * needed[0]) - own_bytes())  # type: ignore[method-assign]
    asyncio.run(use("b"))
    assert list(host.healths) == ["b"]
    host.close()


# The command line.


def test_ps_lists_what_is_in_memory_and_the_store_can_be_asked_for(
    start_ktdesk: StartKtdesk, ktdesk: RunKtdesk, files: list[Path], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("folder")
    shutil.copy(files[0], folder / "stored.gguf")
    options = ("--context", "512", "--threads", "1", "--models-folder", str(folder))
    with server_process(start_ktdesk, files[0], str(files[1]), *options) as (process, url):
        ids = [model["id"] for model in httpx.get(f"{url}/v1/models").json()["data"]]
        assert ids == ["a", "b", "stored"]
        body = {"model": "stored", "prompt": "x", "max_tokens": 1}
        assert httpx.post(f"{url}/v1/completions", json=body, timeout=60).status_code == 200
        (listed,) = json.loads(ktdesk("ps", "--json").out)["servers"]
        assert [model["name"] for model in listed["models"]] == ["stored"]
        assert f"{process.pid}  stored  {url}" in ktdesk("ps").out


def test_a_folder_that_is_not_there_is_said(ktdesk: RunKtdesk, talker: Path, tmp_path: Path) -> None:
    result = ktdesk("serve", talker, "--models-folder", tmp_path / "none")
    assert result.code == ExitCode.USAGE
    assert "--models-folder" in result.error


def test_there_is_room_for_one_at_least(ktdesk: RunKtdesk, talker: Path) -> None:
    with pytest.raises(UsageError, match="--models-loaded"):
        ServerSettings(max_models=0)
    assert ktdesk("serve", talker, "--models-loaded", "0").code == ExitCode.USAGE
