"""`ktdesk setup` on the command line: without a terminal, with its exit codes, and what it prints at the end."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from gguf import GGUFWriter
from loopback_hub import LoopbackHub
from running import RunKtdesk
from trials import FakeTrial, FakeTrials, measured_machine

from ktdesk.exit_codes import ExitCode
from ktdesk.setting_up import kept_text
from ktdesk_wizard.setup.messages import Task
from ktdesk_wizard.setup.step import Step

ModelNamed = Callable[[str], Path]


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ktdesk_wizard.setup.flow.Trials", FakeTrials)
    measured_machine(Path(os.environ["KTDESK_HOME"]))


def test_without_a_terminal_it_needs_yes_and_ends_with_the_command_to_chat(
    ktdesk: RunKtdesk, tiny_model: ModelNamed
) -> None:
    model = tiny_model("qwen3moe")
    result = ktdesk("setup", model)
    assert result.code == ExitCode.USAGE
    assert "add --yes" in result.error
    assert len(result.err.splitlines()) == 1, "before anything is done"
    result = ktdesk("setup", model, "--yes", "--context", "128")
    assert result.code == ExitCode.OK
    assert f"Chat with it: ktdesk chat {model} --context 128" in result.out
    assert "measured" in result.out
    assert "it answered 'Paris'" in result.err


@pytest.mark.parametrize("command", [("setup",), ("plan",), ("pull",), ("run",), ("chat",), ("setup", "--yes")])
@pytest.mark.parametrize("name", ["", "  "])
def test_a_name_of_nothing_is_told_before_all_else(ktdesk: RunKtdesk, command: tuple[str, ...], name: str) -> None:
    result = ktdesk(*command, name)
    assert result.code == ExitCode.USAGE
    assert "MODEL is empty" in result.error
    assert len(result.err.splitlines()) == 1


@pytest.mark.parametrize("signal", [SystemExit(143), KeyboardInterrupt()], ids=["SIGTERM", "Ctrl-C"])
def test_stopped_by_a_signal_it_says_what_is_kept_and_the_same_command_goes_on(
    ktdesk: RunKtdesk,
    tiny_model: ModelNamed,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    signal: BaseException,
) -> None:
    class Stopped(FakeTrials):
        def begin(self, task: Task) -> FakeTrial:  # type: ignore[override]
            if not task.is_rehearsal:
                raise signal
            return super().begin(task)

    model = tiny_model("qwen3moe")
    monkeypatch.setattr("ktdesk_wizard.setup.flow.Trials", Stopped)
    try:
        code, _, said = ktdesk("setup", model, "--yes")
    except SystemExit as end:  # `main` ends with it
        code, said = int(end.code or 0), capsys.readouterr().err
    assert code == (143 if isinstance(signal, SystemExit) else ExitCode.INTERRUPTED)
    assert re.search(r"^Load it +stopped\n +kept: that it was confirmed; the same command goes on", said, re.MULTILINE)
    assert "failed" not in said
    monkeypatch.setattr("ktdesk_wizard.setup.flow.Trials", FakeTrials)
    result = ktdesk("setup", model, "--yes")
    assert (result.code, "confirmed before (before)" in result.err) == (ExitCode.OK, True)


def test_json_holds_plan_run_and_errors(ktdesk: RunKtdesk, tiny_model: ModelNamed) -> None:
    facts = json.loads(ktdesk("setup", tiny_model("qwen3moe"), "--yes", "--json").out)
    assert facts["planned"][1]["error"] == pytest.approx(1 / 9)
    assert facts["plan"]["verdict"]["kind"] == "fits"
    assert facts["command"][:2] == ["ktdesk", "chat"]


def test_what_cannot_be_set_up_is_one_line(
    ktdesk: RunKtdesk, tiny_model: ModelNamed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tiny_model("qwen3moe")
    (tmp_path / "text.gguf").write_text("no model")
    (tmp_path / "file").touch()
    for arguments, code, message in (
        ((tmp_path / "absent.gguf",), ExitCode.MODEL_FILE, "absent.gguf"),
        ((tmp_path / "text.gguf",), ExitCode.MODEL_FILE, "text.gguf"),
        ((model, "--max-memory", "0.001"), ExitCode.RESOURCES, "--force goes on"),
        ((model, "--context", "99999"), ExitCode.USAGE, "trained for 512"),
        ((model, "--device", "cpu", "--max-gpu-memory", "3"), ExitCode.USAGE, "--max-gpu-memory is for a card"),
        ((model, "--compute", "int7"), ExitCode.USAGE, "compute must be"),
    ):
        result = ktdesk("setup", *arguments, "--yes")
        assert result.code == code, result.err
        assert message in result.error

    def measure(*_: object, **__: object) -> None:
        raise AssertionError("nobody should wait for what cannot be kept")

    monkeypatch.setattr("ktdesk_wizard.setup.work.measure", measure)
    result = ktdesk("--home", tmp_path / "file", "setup", model, "--yes")
    assert result.code == ExitCode.RESOURCES
    assert "cannot be kept" in result.error


def test_a_model_on_a_hub_is_rehearsed_from_its_headers_before_it_is_fetched(
    ktdesk: RunKtdesk, hub: LoopbackHub, tiny_model: ModelNamed, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "nobody"))
    trials = FakeTrials()
    monkeypatch.setattr("ktdesk_wizard.setup.flow.Trials", lambda: trials)
    model = tiny_model("qwen3moe")
    hub.add("owner/Tiny-GGUF", "tiny-F32.gguf", model.read_bytes())
    result = ktdesk("setup", "owner/Tiny-GGUF:F32", "--yes", "--context", "128")
    assert result.code == ExitCode.OK, result.err
    assert "Chat with it: ktdesk chat owner/Tiny-GGUF:F32 --context 128" in result.out
    rehearsed, loaded = (Path(task.path) for task in trials.tasks)
    assert not rehearsed.exists(), "it was a folder of headers"
    assert loaded.read_bytes() == model.read_bytes()
    assert "owner/Tiny-GGUF:F32" in ktdesk("models").out
    asked = len(hub.bytes_asked())
    assert ktdesk("setup", "owner/Tiny-GGUF:F32", "--yes", "--context", "128").code == ExitCode.OK
    assert len(hub.bytes_asked()) == asked, "what is here is not fetched again"


def test_what_no_source_has_is_told_before_the_machine_is_measured(
    ktdesk: RunKtdesk, hub: LoopbackHub, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def measure(*_: object, **__: object) -> None:
        raise AssertionError("nobody should wait for this")

    monkeypatch.setattr("ktdesk_wizard.setup.work.measure", measure)
    (tmp_path / "text.gguf").write_text("no model")
    hub.add("owner/Gated-GGUF", "gated-F32.gguf", b"GGUF")
    hub.gated.add("owner/Gated-GGUF")
    for name in (
        "owner/Gated-GGUF",
        "owner/Absent-GGUF",
        "deepseek-v33",
        tmp_path / "text.gguf",
        tmp_path / "absent.gguf",
    ):
        result = ktdesk("--home", tmp_path / "empty", "setup", name, "--yes")
        assert result.code in (ExitCode.FETCH, ExitCode.USAGE, ExitCode.MODEL_FILE), result.err


def test_names_that_no_hub_knows_are_one_line(ktdesk: RunKtdesk, hub: LoopbackHub, tiny_model: ModelNamed) -> None:
    hub.add("owner/Tiny-GGUF", "tiny-F32.gguf", tiny_model("qwen3moe").read_bytes())
    for arguments, message in (
        (("owner/Tinny-GGUF",), "owner/Tinny-GGUF"),
        (("owner/Tiny-GGUF", "--quant", "Q4_K_M"), "F32"),
        (("deepseek-v33",), "did you mean"),
    ):
        result = ktdesk("setup", *arguments, "--yes")
        assert result.code in (ExitCode.FETCH, ExitCode.MODEL_FILE)
        assert message in result.error
    result = ktdesk("setup", tiny_model("qwen3moe"), "--quant", "F32", "--yes")
    assert "a file has the one that it has" in result.error
    assert "a file has the one that it has" in ktdesk("setup", "demo", "--quant", "Q4_K_M", "--yes").error


def test_a_model_of_which_a_part_is_here_is_fetched_to_its_end(
    ktdesk: RunKtdesk, hub: LoopbackHub, tiny_model: ModelNamed, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "nobody"))
    hub.add("owner/Tiny-GGUF", "tiny-F32.gguf", tiny_model("qwen3moe").read_bytes())
    assert ktdesk("setup", "owner/Tiny-GGUF:F32", "--yes").code == ExitCode.OK
    (file,) = Path(os.environ["KTDESK_HOME"]).glob("models/owner/*/tiny-F32.gguf")
    file.unlink()
    assert ktdesk("setup", "owner/Tiny-GGUF:F32", "--yes").code == ExitCode.OK
    assert file.exists()


def test_the_address_of_a_file_is_fetched(
    ktdesk: RunKtdesk, hub: LoopbackHub, tiny_model: ModelNamed, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "nobody"))
    hub.add("owner/Tiny-GGUF", "tiny-F32.gguf", tiny_model("qwen3moe").read_bytes())
    result = ktdesk("setup", f"{hub.url}/owner/Tiny-GGUF/resolve/main/tiny-F32.gguf", "--yes")
    assert result.code == ExitCode.OK, result.err
    assert list(Path(os.environ["KTDESK_HOME"]).glob("models/**/tiny-F32.gguf"))


def test_an_architecture_that_nobody_knows_is_told_before_the_machine_is_measured(
    ktdesk: RunKtdesk, hub: LoopbackHub, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def measure(*_: object, **__: object) -> None:
        raise AssertionError("nobody should wait for this")

    monkeypatch.setattr("ktdesk_wizard.setup.work.measure", measure)
    path = tmp_path / "other.gguf"
    writer = GGUFWriter(path, "other9")
    writer.add_block_count(1)
    writer.add_tensor("token_embd.weight", np.zeros((8, 32), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    hub.add("owner/Other-GGUF", "other-F32.gguf", path.read_bytes())
    for name in (path, "owner/Other-GGUF:F32"):
        result = ktdesk("--home", tmp_path / "empty", "setup", name, "--yes")
        assert result.code == ExitCode.UNSUPPORTED
        assert "the architecture 'other9' is not one that this engine knows" in result.error
        assert "take another model" in result.err
    assert ktdesk("plan", path).code == ExitCode.UNSUPPORTED


def test_who_stops_a_setup_hears_what_is_kept_and_where_it_goes_on() -> None:
    measured, stopped = Step("measure", "done"), Step("prove", "cancelled")
    assert kept_text([measured, stopped]) == (
        "kept: what was measured of the machine; the same command goes on from there"
    )
    before = replace(measured, is_from_before=True)
    assert kept_text([before, stopped]) == "nothing is lost: the same command goes on from there"
    assert kept_text([stopped]) == "nothing is lost: the same command begins again"
