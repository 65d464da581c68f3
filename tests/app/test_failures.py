"""Which error ends with which code."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from ktdesk.errors import UsageError
from ktdesk.exit_codes import ExitCode
from ktdesk.failures import describe, exit_code_of
from ktdesk_engine import errors as engine
from ktdesk_wizard import errors as wizard


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (UsageError("x"), ExitCode.USAGE),
        (engine.ConfigError("x"), ExitCode.USAGE),
        (engine.ModelFileError(Path("m"), "x"), ExitCode.MODEL_FILE),
        (engine.MissingShardError(Path("m"), "x"), ExitCode.MODEL_FILE),
        (engine.UnsupportedError("x"), ExitCode.UNSUPPORTED),
        (engine.RequestError("x"), ExitCode.REQUEST),
        (engine.ContextOverflowError("x"), ExitCode.REQUEST),
        (engine.TemplateError("x"), ExitCode.REQUEST),
        (engine.ResourceError("x"), ExitCode.RESOURCES),
        (engine.EngineError("x"), ExitCode.MODEL_FILE),
        (wizard.SourceError("x"), ExitCode.MODEL_FILE),
        (wizard.FetchError("x"), ExitCode.FETCH),
        (wizard.HomeFolderError("x"), ExitCode.RESOURCES),
        (FileNotFoundError(errno.ENOENT, "x"), ExitCode.MODEL_FILE),
        (OSError(errno.ENOSPC, "x"), ExitCode.RESOURCES),
        (MemoryError(), ExitCode.RESOURCES),
        (BrokenPipeError(), ExitCode.OUTPUT_CLOSED),
        (KeyboardInterrupt(), ExitCode.INTERRUPTED),
        (ZeroDivisionError("x"), ExitCode.UNEXPECTED),
    ],
)
def test_each_kind_of_error_has_its_exit_code(error: BaseException, code: ExitCode) -> None:
    assert exit_code_of(error) is code


def subclasses(kind: type[BaseException]) -> set[type[BaseException]]:
    below = {sub for direct in kind.__subclasses__() for sub in subclasses(direct)}
    return {kind} | below


@pytest.mark.parametrize("base", [engine.EngineError, wizard.WizardError])
def test_no_error_that_is_raised_on_purpose_counts_as_unexpected(base: type[BaseException]) -> None:
    for kind in subclasses(base) - {wizard.WizardError}:
        assert exit_code_of(kind.__new__(kind)) is not ExitCode.UNEXPECTED, kind


def test_an_error_of_the_system_names_the_file_and_what_to_do() -> None:
    error = OSError(errno.ENOSPC, "No space left on device", "/data/x")
    assert describe(error) == "/data/x: No space left on device; make room on that disk"


def test_a_setting_is_named_as_the_user_typed_it() -> None:
    assert describe(engine.ConfigError("num_threads must be 1")) == "--threads must be 1"
    assert describe(engine.ConfigError("min_p must be 1: the top_p")) == "--min-p must be 1: the top_p"
    assert describe(engine.ConfigError("a context of 7")) == "a context of 7"
    assert describe(UsageError("seed")) == "seed"


def test_a_message_is_one_line() -> None:
    assert describe(UsageError("two\n  lines")) == "two lines"
