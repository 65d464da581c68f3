"""What holds for all commands: help, usage, errors in one line, exit codes."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from running import RunKtdesk

from ktdesk.exit_codes import MEANING, ExitCode
from ktdesk_engine.engine import Engine
from ktdesk_engine.models.registry import families
from ktdesk_engine.quants.formats import WeightType

COMMANDS = ("demo", "run", "chat", "inspect", "eval", "bench")
README = Path(__file__).parents[2] / "README.md"


@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_of_a_command_loads_neither_engine_nor_arrays(command: str, tmp_path: Path) -> None:
    code = (
        "import sys\nfrom ktdesk.cli import run_command_line\n"
        f"assert run_command_line([{command!r}, '--help']) == 0\n"
        "print(*sys.modules, file=sys.stderr)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert f"Usage: ktdesk {command}" in result.stdout
    heavy = {"numpy", "gguf", "tokenizers", "jinja2", "yaml", "rich", "ktdesk_engine"}
    assert not heavy & set(result.stderr.split())


def test_the_help_names_every_command_and_every_exit_code(ktdesk: RunKtdesk) -> None:
    result = ktdesk("--help")
    assert result.code == 0
    for word in (*COMMANDS, *MEANING.values()):
        assert word in result.out


def test_without_arguments_help_is_printed(ktdesk: RunKtdesk) -> None:
    assert ktdesk() == ktdesk("--help")


def test_the_readme_has_the_same_table_of_exit_codes(ktdesk: RunKtdesk) -> None:
    rows = re.findall(r"^\| (\d+) \| (.+) \|$", README.read_text(encoding="utf-8"), re.MULTILINE)
    assert rows == [(str(int(code)), MEANING[code]) for code in ExitCode]


def test_the_readme_sets_everything_up_with_one_line_each() -> None:
    first_screen = "\n".join(README.read_text(encoding="utf-8").splitlines()[:24])
    blocks = re.findall(r"```sh\n(.*?)```", first_screen, re.DOTALL)
    assert len(blocks) == 2
    for block in blocks:
        assert block.count("\n") == 1
        assert block.startswith("python3 -m venv .venv && .venv/bin/pip install ")


def test_the_readme_names_every_architecture_and_weight_type() -> None:
    text = README.read_text(encoding="utf-8")
    assert [name for name in families() if f"`{name}`" not in text] == []
    assert [kind.name for kind in WeightType if not re.search(rf"\b{kind.name}\b", text)] == []


def test_the_version_is_that_of_the_distribution(ktdesk: RunKtdesk) -> None:
    from importlib import metadata

    assert ktdesk("--version").out == f"ktdesk {metadata.version('ktdesk')}\n"


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (("rum",), "rum"),
        (("run", "--no-such-option", "m"), "--no-such-option"),
        (("run", "m", "p", "--top-k", "many"), "--top-k"),
        (("run", "m", "p", "--logprobs", "3"), "--logprobs needs --json"),
        (("run", "m", "p", "--raw", "--system", "s"), "--raw"),
        (("run", "m", "p", "more"), "more"),
    ],
)
def test_a_wrong_command_line_is_told_in_one_line(ktdesk: RunKtdesk, arguments: tuple[str, ...], part: str) -> None:
    result = ktdesk(*arguments)
    assert result.code == ExitCode.USAGE
    assert part in result.error
    assert result.out == ""


@pytest.mark.parametrize("command", ["run", "chat", "serve", "inspect", "eval", "pull", "profile", "cache"])
def test_a_command_without_what_it_needs_says_so_in_one_line(ktdesk: RunKtdesk, command: str) -> None:
    result = ktdesk(command)
    assert result.code == ExitCode.USAGE
    assert re.search(f"Missing .+; see 'ktdesk {command} --help'", result.error)
    assert result.err.count("\n") == 1


@pytest.mark.parametrize(
    ("options", "part"),
    [
        (("--temperature", "-1"), "temperature"),
        (("--top-p", "2"), "--top-p must be"),
        (("--seed", "-5"), "--seed must be"),
        (("--json", "--logprobs", "101"), "--logprobs must be"),
        (("--max-tokens", "0"), "--max-tokens must be"),
        (("--threads", "0"), "--threads must be"),
        (("--threads", "999"), "--threads 999: there are "),
        (("--isa", "sse9"), "sse9"),
        (("--compute", "float8"), "float8"),
        (("--context", "513"), "trained for 512"),
    ],
)
def test_a_setting_out_of_range_is_a_usage_error(
    ktdesk: RunKtdesk, tiny_model: Callable[[str], Path], options: tuple[str, ...], part: str
) -> None:
    result = ktdesk("run", tiny_model("llama-moe"), "x", *options)
    assert result.code == ExitCode.USAGE
    assert part in result.error


def fail_with(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    def load(*_: object) -> None:
        raise error

    monkeypatch.setattr(Engine, "load", load)


def test_an_error_nobody_expected_says_so_and_how_to_learn_more(
    ktdesk: RunKtdesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail_with(monkeypatch, RuntimeError("gears\njammed"))
    result = ktdesk("run", "m.gguf", "x")
    assert result.code == ExitCode.UNEXPECTED
    assert "RuntimeError: gears jammed" in result.error
    assert "--debug" in result.error


def test_with_debug_the_traceback_is_shown(ktdesk: RunKtdesk, monkeypatch: pytest.MonkeyPatch) -> None:
    fail_with(monkeypatch, RuntimeError("gears"))
    result = ktdesk("--debug", "run", "m.gguf", "x")
    assert result.code == ExitCode.UNEXPECTED
    assert "Traceback" in result.err
    assert "in load" in result.err


def test_running_out_of_memory_is_no_traceback(ktdesk: RunKtdesk, monkeypatch: pytest.MonkeyPatch) -> None:
    fail_with(monkeypatch, MemoryError())
    result = ktdesk("run", "m.gguf", "x")
    assert result.code == ExitCode.RESOURCES
    assert "out of memory" in result.error


def test_ctrl_c_is_quiet_while_the_program_is_still_imported(tmp_path: Path) -> None:
    (tmp_path / "typer.py").write_text("raise KeyboardInterrupt")
    result = subprocess.run([sys.executable, "-m", "ktdesk", "--help"], capture_output=True, cwd=tmp_path)
    assert (result.returncode, result.stdout, result.stderr) == (ExitCode.INTERRUPTED, b"", b"")


def test_the_program_is_the_one_that_is_quiet() -> None:
    from importlib import metadata

    import ktdesk.__main__

    (program,) = (entry for entry in metadata.entry_points(group="console_scripts") if entry.name == "ktdesk")
    assert program.load() is ktdesk.__main__.main


def test_escape_sequences_in_a_files_name_do_not_reach_the_terminal(ktdesk: RunKtdesk, tmp_path: Path) -> None:
    path = tmp_path / "a\x1b[31mb.gguf"
    path.write_bytes(b"GG")
    for arguments in (("inspect", path), ("--debug", "inspect", path), ("run", tmp_path / "a[31mb.gguf", "x")):
        result = ktdesk(*arguments)
        assert result.code == ExitCode.MODEL_FILE
        assert "a\u241b[31mb.gguf" in result.err
        assert "\x1b" not in result.err


def test_ctrl_c_ends_with_130_and_without_words(ktdesk: RunKtdesk, monkeypatch: pytest.MonkeyPatch) -> None:
    fail_with(monkeypatch, KeyboardInterrupt())
    assert ktdesk("run", "m.gguf", "x") == (ExitCode.INTERRUPTED, "", "")


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("plan", "MODEL", "--max-memory", "-1"), "--max-memory must be above 0: -1"),
        (("plan", "MODEL", "--max-gpu-memory", "nan"), "--max-gpu-memory must be above 0: nan"),
        (("plan", "MODEL", "--sequences", "0"), "--sequences must be at least 1: 0"),
        (("plan", "MODEL", "--device", "tpu"), "--device must be one of"),
        (("serve", "MODEL", "--parallel", "0"), "--parallel must be at least 1: 0"),
        (("serve", "MODEL", "--parallel", "1000000"), "--parallel must be at most 1024: 1000000;"),
        (("plan", "MODEL", "--context", "1e6"), "'--context': must be a whole number;"),
        (("serve", "MODEL", "--max-waiting", "-1"), "--max-waiting must be at least 0: -1"),
        (("serve", "MODEL", "--max-wait", "0"), "--max-wait must be above 0: 0"),
        (("bench", "--kernels", "--repeat", "0"), "'--repeat'"),
    ],
)
def test_an_error_names_the_option_and_not_what_it_becomes(
    ktdesk: RunKtdesk, arguments: tuple[str, ...], error: str
) -> None:
    result = ktdesk(*arguments)
    assert result.code == ExitCode.USAGE
    assert error in result.err


@pytest.mark.parametrize(
    ("arguments", "errors"),
    [
        (("run", "m.gguf", "x", "--accelerator"), ("'--accelerator' requires an argument; see 'ktdesk run --help'",)),
        (("models", "rm", "--jsn"), ("--jsn", "see 'ktdesk models rm --help'")),
        (("plan", "m.gguf", "--accelerator", "cuda"), ("here that is --device gpu; see 'ktdesk plan --help'",)),
        (("plan", "m.gguf", "--accelerator-memory", "8"), ("here that is --max-gpu-memory",)),
        (("run", "m.gguf", "--device", "gpu"), ("here that is --accelerator cuda; see 'ktdesk run --help'",)),
        (("--home",), ("'--home' requires an argument; see 'ktdesk --help'",)),
    ],
)
def test_an_option_that_cannot_be_parsed_names_the_help_of_its_command(
    ktdesk: RunKtdesk, arguments: tuple[str, ...], errors: tuple[str, ...]
) -> None:
    result = ktdesk(*arguments)
    assert result.code == ExitCode.USAGE
    assert all(error in result.error for error in errors), result.error
