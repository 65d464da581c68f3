"""Runs the command line, inside this process or as one of its own."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from gguf import GGUFWriter
from model_variants import Tensors, write_variant
from running import Result, RunKtdesk, StartKtdesk
from tiny_models import TINY, byte_level_alphabet, write_model

from ktdesk.cli import run_command_line


@pytest.fixture
def ktdesk(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> RunKtdesk:
    """ktdesk("run", path, ..., stdin="text"): what it wrote and ended with."""

    def run(*arguments: str | Path, stdin: str | bytes = b"") -> Result:
        data = stdin.encode() if isinstance(stdin, str) else stdin
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data), encoding="utf-8"))
        capsys.readouterr()
        code = run_command_line([str(argument) for argument in arguments])
        return Result(code, *capsys.readouterr())

    return run


def _heed_interrupts() -> None:
    """A shell starts what it runs in the background with SIGINT ignored, and that is inherited."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.fixture
def start_ktdesk(tmp_path: Path) -> StartKtdesk:
    """A process of its own, in a folder where no source code lies."""

    def start(*arguments: str | Path, environment: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "ktdesk", *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=tmp_path,
            env={**os.environ, "PYTHONUNBUFFERED": "", **(environment or {})},
            preexec_fn=_heed_interrupts,
        )

    return start


@pytest.fixture(scope="session")
def talker(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model that says small letters and does not end by itself. Its context is long."""

    def only_letters(tensors: Tensors) -> None:
        head = tensors["output.weight"]
        letters = [byte_level_alphabet().index(letter) for letter in "abcdefghijklmnopqrstuvwxyz"]
        silent = [row for row in range(len(head)) if row not in letters]
        head[silent] = 0.0

    path = tmp_path_factory.mktemp("talker") / "talker.gguf"
    return write_variant("llama-moe", path, {"context_length": 200_000}, only_letters)


@pytest.fixture
def model_with(tmp_path: Path) -> Callable[[Callable[[GGUFWriter], None]], Path]:
    """model_with(edit): the tiny mixture of experts, with something else in its file."""

    def write(edit: Callable[[GGUFWriter], None]) -> Path:
        path = tmp_path / "edited.gguf"
        write_model(TINY["llama-moe"], path, "llama-moe", seed=1, edit=edit)
        return path

    return write
