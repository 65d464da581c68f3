"""`ktdesk demo`: with the demo model itself where there is one, and around it where there is not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from running import RunKtdesk

from ktdesk import model_paths
from ktdesk.exit_codes import ExitCode
from ktdesk_engine.engine import Engine
from ktdesk_wizard import demo_model as demo_module
from ktdesk_wizard.errors import FetchError

QUESTION = "What is the capital of France?"


@pytest.fixture
def made_elsewhere(talker: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("KTDESK_DEMO_MODEL", str(talker))
    return talker


@pytest.fixture
def not_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KTDESK_DEMO_MODEL", raising=False)


def test_the_demo_names_paris(ktdesk: RunKtdesk, demo_model: Path) -> None:
    result = ktdesk("demo", QUESTION)
    assert result.code == 0
    assert "Paris" in result.out


def test_the_demo_model_is_a_mixture_of_experts_that_runs(ktdesk: RunKtdesk, demo_model: Path) -> None:
    facts = json.loads(ktdesk("inspect", "demo", "--json").out)
    assert facts["runs"]
    assert (facts["shapes"]["experts"], facts["shapes"]["experts_used"]) == (8, 2)
    assert facts["licence"] == "apache-2.0"


def test_greedy_gives_the_same_tokens_every_time(ktdesk: RunKtdesk, demo_model: Path) -> None:
    def tokens() -> list[int]:
        arguments = ("run", demo_model, QUESTION, "--temperature", "0", "--max-tokens", "24", "--json")
        return list(json.loads(ktdesk(*arguments).out)["token_ids"])

    first = tokens()
    assert len(first) > 3
    assert tokens() == first


def test_the_demo_answers_greedily_and_prints_only_the_answer(ktdesk: RunKtdesk, made_elsewhere: Path) -> None:
    first = ktdesk("demo", "the", "--max-tokens", "8")
    assert first.code == 0
    assert len(first.out) == 9
    assert ktdesk("demo", "the", "--max-tokens", "8").out == first.out
    assert ktdesk("run", "demo", "the", "--max-tokens", "8", "--temperature", "0").out == first.out


def test_an_answer_that_finds_no_end_is_ended(ktdesk: RunKtdesk, made_elsewhere: Path) -> None:
    assert len(ktdesk("demo", "the").out) == 513


def test_zero_tokens_are_refused_and_not_taken_for_the_default(ktdesk: RunKtdesk, made_elsewhere: Path) -> None:
    result = ktdesk("demo", "the", "--max-tokens", "0")
    assert result.code == ExitCode.USAGE
    assert "--max-tokens must be" in result.error


def test_a_file_that_is_not_needed_is_said_to_be_so(ktdesk: RunKtdesk, made_elsewhere: Path) -> None:
    result = ktdesk("demo", "--fetch-only", "--from", "given.gguf")
    assert (result.code, result.out) == (0, f"{made_elsewhere}\n")
    assert "given.gguf is not needed" in result.err


def test_without_a_question_a_chat_opens(ktdesk: RunKtdesk, made_elsewhere: Path) -> None:
    result = ktdesk("demo", "--max-tokens", "3", stdin="the cat\nthe dog\n")
    assert result.code == 0
    assert result.err.count(" answer token") == 2, "two questions, each answered; the text is any characters"


def test_fetch_only_prints_where_the_model_is(ktdesk: RunKtdesk, made_elsewhere: Path) -> None:
    assert ktdesk("demo", "--fetch-only") == (0, f"{made_elsewhere}\n", "")


def test_a_demo_model_that_is_named_but_not_there_is_an_error(
    ktdesk: RunKtdesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KTDESK_DEMO_MODEL", "nowhere.gguf")
    result = ktdesk("demo", "--fetch-only")
    assert result.code == ExitCode.MODEL_FILE
    assert "KTDESK_DEMO_MODEL" in result.error


@pytest.mark.usefixtures("not_made")
def test_without_a_network_one_line_says_what_to_do(ktdesk: RunKtdesk, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_network(*_: object) -> Path:
        raise FetchError("the demo model could not be fetched: no route; give it with --from FILE")

    monkeypatch.setattr(demo_module, "find_source", no_network)
    result = ktdesk("demo", "x")
    assert result.code == ExitCode.FETCH
    assert "--from FILE" in result.error


@pytest.mark.usefixtures("not_made")
def test_a_disk_that_is_full_is_told_with_what_is_needed_and_where(
    ktdesk: RunKtdesk, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    class Usage:
        free = 3 << 20

    monkeypatch.setattr(demo_module.shutil, "disk_usage", lambda _: Usage)
    result = ktdesk("--home", tmp_path / "home", "demo", "x")
    assert result.code == ExitCode.RESOURCES
    assert "617 MiB" in result.error
    assert "3 MiB are free" in result.error
    assert str(tmp_path / "home") in result.error
    assert "--home" in result.error


@pytest.mark.usefixtures("not_made")
def test_the_demo_model_is_made_in_the_data_folder_with_progress(
    ktdesk: RunKtdesk, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, talker: Path
) -> None:
    def make(profile: object, folder: Path, *, source: Path | None, report: model_paths.Progress) -> Path:
        assert folder == tmp_path / "models" / "demo"
        assert source == Path("given.gguf")
        report.step("making")
        return talker

    monkeypatch.setattr(demo_module, "demo_model", make)
    result = ktdesk("--home", tmp_path, "demo", "--from", "given.gguf", "--fetch-only")
    assert result == (0, f"{talker}\n", "making\n")


def test_the_fixture_says_letters_only(talker: Path) -> None:
    """What the other tests count on."""
    with Engine.load(talker) as engine:
        scores = engine.score(engine.prompt_ids("the cat"))
        best = [engine.tokenizer.decode([int(token_id)]) for token_id in scores.argmax(axis=-1)]
    assert all(token.isalpha() for token in best)
