"""Text from the command line and from standard input is UTF-8, whatever the locale says."""

from __future__ import annotations

import builtins
import io
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from running import RunKtdesk, StartKtdesk

from ktdesk.chat_loop import _lines
from ktdesk.exit_codes import ExitCode
from ktdesk.text_input import argument_text

ASCII_LOCALE = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
SHORT = ("--max-tokens", "3", "--temperature", "0")


def test_bytes_that_the_locale_could_not_read_are_utf8() -> None:
    assert argument_text("caf\udcc3\udca9") == "café"
    assert argument_text("café") == "café"
    with pytest.raises(typer.BadParameter, match="0xe9 at 3"):
        argument_text("caf\udce9")


@pytest.mark.parametrize(
    "arguments",
    [
        ("run", "m", "caf\udce9"),
        ("run", "m", "x", "--system", "caf\udce9"),
        ("run", "m", "x", "--stop", "a", "--stop", "caf\udce9"),
        ("chat", "m", "--system", "caf\udce9"),
        ("demo", "caf\udce9"),
    ],
)
def test_an_argument_that_is_no_text_is_a_usage_error(ktdesk: RunKtdesk, arguments: tuple[str, ...]) -> None:
    result = ktdesk(*arguments)
    assert result.code == ExitCode.USAGE
    assert "not UTF-8: byte 0xe9 at 3" in result.error


def test_a_prompt_is_read_as_utf8_in_an_ascii_locale(start_ktdesk: StartKtdesk, talker: Path) -> None:
    with start_ktdesk("run", talker, "é", "--raw", *SHORT, environment=ASCII_LOCALE) as process:
        _out, err = process.communicate(timeout=60)
    assert "2 prompt tokens" in err  # its two bytes


@pytest.mark.parametrize(
    "environment",
    [{"LC_ALL": "C"}, ASCII_LOCALE, {"PYTHONIOENCODING": "ascii"}, {"PYTHONIOENCODING": "latin-1"}],
    ids=["C", "ASCII", "ascii streams", "Latin-1 streams"],
)
def test_a_chat_reads_utf8_in_every_locale(
    start_ktdesk: StartKtdesk, ktdesk: RunKtdesk, talker: Path, environment: dict[str, str]
) -> None:
    with start_ktdesk("chat", talker, *SHORT, environment=environment) as process:
        _out, err = process.communicate("é\n", timeout=60)
    assert process.returncode == 0
    assert err.split()[:3] == ktdesk("run", talker, "é", *SHORT).err.split()[:3]  # N prompt tokens


def test_a_line_that_is_not_utf8_ends_a_chat_after_those_before_it(ktdesk: RunKtdesk, talker: Path) -> None:
    result = ktdesk("chat", talker, *SHORT, stdin=b"the cat\ncaf\xe9\nthe dog\n")
    assert result.code == ExitCode.USAGE
    assert "line 2 of standard input is not UTF-8: byte 0xe9 at 3" in result.error
    assert len(result.out.splitlines()) == 1


def read_until(descriptor: int, end: bytes) -> None:
    seen = b""
    while not seen.endswith(end):
        seen += os.read(descriptor, 1)


def test_a_terminal_in_an_ascii_locale_takes_utf8(ktdesk: RunKtdesk, talker: Path) -> None:
    screen, terminal = pty.openpty()
    command = [sys.executable, "-m", "ktdesk", "chat", str(talker), *SHORT]
    environment = {**os.environ, **ASCII_LOCALE}
    with subprocess.Popen(command, stdin=terminal, stdout=terminal, stderr=subprocess.PIPE, env=environment) as process:
        os.close(terminal)
        for line in ("é\n", "/quit\n"):
            read_until(screen, b"> ")
            os.write(screen, line.encode())
        _out, err = process.communicate(timeout=60)
    os.close(screen)
    prompt = " ".join(ktdesk("run", talker, "é", *SHORT).err.split()[:3])  # N prompt tokens
    assert prompt in err.decode()


def test_a_line_that_is_not_utf8_is_skipped_at_the_prompt(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    typed = iter(["the cat", UnicodeDecodeError("utf-8", b"\xe9", 0, 1, "x"), "the dog"])

    def read(prompt: str) -> str:
        line = next(typed, EOFError())
        if isinstance(line, Exception):
            raise line
        return line

    for name in ("stdin", "stdout"):
        monkeypatch.setattr(sys, name, Terminal())
    monkeypatch.setattr(builtins, "input", read)
    assert list(_lines()) == ["the cat", "the dog"]
    assert "not UTF-8" in capsys.readouterr().err
