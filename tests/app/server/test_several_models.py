"""One server, several models: one at a time by default, each loaded when it is asked for."""

from __future__ import annotations

import asyncio
import json
import shutil
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest
from openai import OpenAI
from running import RunKtdesk, StartKtdesk
from serving import RunningServer, running_server, server_process

from ktdesk.errors import UsageError
from ktdesk.exit_codes import ExitCode
from ktdesk.server import hosting
from ktdesk.server.errors import BadRequestError, NotFoundError, NotReadyError
from ktdesk.server.hosting import ModelHost
from ktdesk.server.known_models import KnownModels
from ktdesk.server.memory_guard import MemoryGuard, own_bytes
from ktdesk.server.opening import OpenSettings
from ktdesk.server.settings import ServerSettings
from ktdesk_engine.config import EngineConfig
from ktdesk_wizard.probe.fact import reported
from ktdesk_wizard.probe.machine_facts import MachineFacts
from ktdesk_wizard.probe.probe import probe
from ktdesk_wizard.store.models import stored_models

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


def test_who_asks_while_another_model_answers_is_told_so_at_once(server: RunningServer) -> None:
    body = {"model": "a", "prompt": "x", "max_tokens": 100_000, "ignore_eos": True, "stream": True}
    with httpx.stream("POST", f"{server.url}/v1/completions", json=body, timeout=60) as running:
        lines = running.iter_lines()
        assert next(lines)
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


def test_all_who_ask_for_a_model_that_loads_get_their_answers(server: RunningServer) -> None:
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda _: ask(server, "b"), range(4)))
    assert [answer.status_code for answer in answers] == [200] * 4


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


def test_a_deadline_counts_the_loading(server: RunningServer, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_a_named_file_is_also_called_as_its_folder_calls_it(talker: Path, tmp_path: Path) -> None:
    (tmp_path / "demo").mkdir()
    path = Path(shutil.copy(talker, tmp_path / "demo" / "some-moe.gguf"))
    (stored,) = stored_models(tmp_path)
    known = KnownModels([path], [tmp_path])
    assert stored.name != "some-moe"
    assert known.find(stored.name) == known.find("some-moe")
    assert [model.name for model in known.all()] == ["some-moe"]


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
    assert [model.name for model in KnownModels([talker], [tmp_path]).all()] == ["talker"]


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
