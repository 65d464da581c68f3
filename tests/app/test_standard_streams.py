"""Standard streams that are closed, full, of another encoding, or that nobody reads."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ktdesk.exit_codes import ExitCode

SHORT = ("--raw", "--max-tokens", "3", "--temperature", "0")
needs_full_device = pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full")


def in_shell(script: str, *arguments: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """script: of the shell, in which "$@" is ktdesk with the arguments."""
    return subprocess.run(
        ["sh", "-c", script, "sh", sys.executable, "-m", "ktdesk", *map(str, arguments)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "", **environment},
        timeout=120,
    )


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_closed_stream_is_as_good_as_none(closed: str, talker: Path) -> None:
    result = in_shell(f'"$@" {closed}', "run", talker, "x", *SHORT)
    assert result.returncode == 0
    assert len(result.stdout) == (0 if ">&-" in closed.replace("2>&-", "") else 4)
    assert "Traceback" not in result.stderr


def test_without_standard_input_a_chat_ends_at_once(talker: Path) -> None:
    result = in_shell('"$@" <&-', "chat", talker)
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


@needs_full_device
@pytest.mark.parametrize("arguments", [("--version",), ("run", "--help"), ("--help",)])
def test_a_full_disk_is_told_in_one_line_even_for_help(arguments: tuple[str, ...]) -> None:
    result = in_shell('"$@" > /dev/full', *arguments)
    assert result.returncode == ExitCode.RESOURCES
    assert result.stderr == "ktdesk: error: No space left on device; make room on that disk\n"


@needs_full_device
def test_a_full_disk_is_told_once_for_an_answer(talker: Path) -> None:
    result = in_shell('"$@" > /dev/full', "run", talker, "x", *SHORT)
    assert result.returncode == ExitCode.RESOURCES
    assert result.stderr.count("No space left on device") == result.stderr.count("\n") == 1


@needs_full_device
def test_notes_that_cannot_be_written_do_not_spoil_the_answer(talker: Path) -> None:
    result = in_shell('"$@" 2> /dev/full', "run", talker, "x", *SHORT)
    assert result.returncode == 0
    assert len(result.stdout) == 4
    assert in_shell('"$@" 2> /dev/full', "run", "nowhere.gguf", "x").returncode == ExitCode.MODEL_FILE


def test_help_that_nobody_reads_ends_as_an_answer_does() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        result = subprocess.run([sys.executable, "-m", "ktdesk", "--help"], stdout=writer, stderr=subprocess.PIPE)
    finally:
        os.close(writer)
    assert (result.returncode, result.stderr) == (ExitCode.OUTPUT_CLOSED, b"")


@pytest.mark.parametrize("command", ["run", "inspect"])
def test_json_is_json_in_every_encoding(command: str, talker: Path, tmp_path: Path) -> None:
    path = tmp_path / "größe \U0001f642.gguf"
    path.symlink_to(talker)
    arguments = (command, path, "--json") if command == "inspect" else (command, path, "x", *SHORT, "--json")
    result = in_shell('"$@"', *arguments, PYTHONIOENCODING="ascii")
    facts = json.loads(result.stdout)
    assert facts["path" if command == "inspect" else "model"] == str(path)


def test_json_for_a_terminal_of_today_keeps_its_letters(talker: Path, tmp_path: Path) -> None:
    path = tmp_path / "größe.gguf"
    path.symlink_to(talker)
    assert "größe" in in_shell('"$@"', "inspect", path, "--json", PYTHONIOENCODING="utf-8").stdout
