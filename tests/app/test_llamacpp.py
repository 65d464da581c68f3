"""Models that llama.cpp computes, from the command line and at a server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from gguf import GGUFWriter
from llamacpp_models import write_gemma
from running import RunKtdesk
from serving import RunningServer, complete, num_cached, number, running_server
from tiny_models import byte_level_alphabet

from ktdesk.exit_codes import ExitCode
from ktdesk.server.settings import ServerSettings
from ktdesk_engine.config import EngineConfig
from ktdesk_engine.llamacpp.extra import is_installed


def only_letters(writer: GGUFWriter) -> None:
    """It says small letters, and does not end by itself."""
    letters = [byte_level_alphabet().index(letter) for letter in "abcdefghijklmnopqrstuvwxyz"]
    embedding = writer.tensors[0]["token_embd.weight"].tensor
    embedding[[row for row in range(len(embedding)) if row not in letters]] *= 0.01


@pytest.fixture(scope="module")
def gemma(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_gemma(tmp_path_factory.mktemp("gemma") / "talker.gguf", only_letters)


@pytest.fixture(scope="module")
def served(gemma: Path) -> Iterator[RunningServer]:
    if not is_installed():  # before the tests' own mark is looked at
        pytest.skip("the extra llamacpp is not installed")
    config = EngineConfig(num_threads=1, context=512, num_sequences=4)
    yield from running_server(gemma, ServerSettings(port=0, finish_seconds=1), config)


@pytest.mark.llamacpp
def test_run_and_inspect_say_which_engine_it_is(ktdesk: RunKtdesk, gemma: Path) -> None:
    shown = ktdesk("inspect", gemma)
    assert shown.code == 0
    assert "It runs on llama.cpp" in shown.out
    assert "'gemma' is not one that this engine knows" in shown.out
    facts = json.loads(ktdesk("inspect", gemma, "--json").out)
    assert (facts["runs"], facts["engine"], facts["not_by_llamacpp"]) == (True, "llamacpp", None)
    options = ("--threads", "1", "--context", "256", "--max-tokens", "5", "--temperature", "0")
    answer = json.loads(ktdesk("run", gemma, "abc", "--json", "--logprobs", "2", *options).out)
    assert answer["engine"]["engine"] == "llamacpp"
    assert len(answer["token_ids"]) == 5
    assert all(len(entry["top"]) == 2 for entry in answer["logprobs"])
    refused = ktdesk("run", gemma, "abc", "--compute", "int8", *options)
    assert refused.code == ExitCode.USAGE
    assert "--compute is for ktdesk's own kernels" in refused.error


@pytest.mark.llamacpp
def test_what_measures_our_kernels_does_not_take_it(ktdesk: RunKtdesk, gemma: Path) -> None:
    assert ktdesk("eval", gemma, "--engine", "llamacpp").code == ExitCode.USAGE
    assert ktdesk("bench", gemma).code == ExitCode.UNSUPPORTED


def test_without_it_inspect_and_run_name_the_command_that_installs_it(ktdesk: RunKtdesk, gemma: Path) -> None:
    shown = ktdesk("inspect", gemma)
    assert shown.code == ExitCode.UNSUPPORTED
    assert "pip install" in shown.out
    result = ktdesk("run", gemma, "hello")
    assert result.code == ExitCode.UNSUPPORTED
    assert "pip install" in result.error


@pytest.mark.llamacpp
def test_a_server_answers_with_it_and_says_so(served: RunningServer) -> None:
    listed = httpx.get(f"{served.url}/v1/models").json()["data"][0]
    assert listed["engine"] == "llamacpp"
    assert any("disk" in what for what in listed["missing"])
    body = {"model": "talker", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 6, "temperature": 0}
    body |= {"logprobs": True, "top_logprobs": 3, "seed": 1}
    choice = httpx.post(f"{served.url}/v1/chat/completions", json=body, timeout=60).json()["choices"][0]
    assert choice["finish_reason"] == "length"
    assert len(choice["logprobs"]["content"]) == 6
    text = choice["message"]["content"]
    stopped = httpx.post(f"{served.url}/v1/chat/completions", json={**body, "stop": text[1:]}, timeout=60).json()
    assert stopped["choices"][0]["message"]["content"] == text[:1] or text[1:] in text[:-1]
    schema = {"type": "object", "properties": {"n": {"enum": [1, 2]}}, "required": ["n"], "additionalProperties": False}
    form = {"type": "json_schema", "json_schema": {"name": "n", "schema": schema, "strict": True}}
    body = {**body, "response_format": form, "max_tokens": 60}
    held = httpx.post(f"{served.url}/v1/chat/completions", json=body, timeout=60).json()
    assert json.loads(held["choices"][0]["message"]["content"])["n"] in (1, 2)


@pytest.mark.llamacpp
def test_prefixes_are_shared_in_memory_there_too(served: RunningServer) -> None:
    first = complete(served.url, "what comes before " * 12)
    again = complete(served.url, "what comes before " * 12)
    assert again["choices"] == first["choices"]
    assert num_cached(again) == 192
    assert number(served.url, "failed_total") == 0
