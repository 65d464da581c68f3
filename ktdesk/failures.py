"""Which exit code an error ends with, and what is said about it. Imported once there is an error."""

from __future__ import annotations

import errno

from ktdesk.errors import AnswerRefusedError, PortError, ServerGoneError, ServerStartError, UsageError
from ktdesk.exit_codes import ExitCode
from ktdesk.options import as_typed
from ktdesk_engine.errors import (
    AcceleratorError,
    ConfigError,
    EngineError,
    ModelFileError,
    RequestError,
    ResourceError,
    UnsupportedError,
)
from ktdesk_profiles.errors import ProfileError
from ktdesk_wizard.errors import (
    CancelledError,
    DoesNotFitError,
    FactsError,
    FetchError,
    HomeFolderError,
    NotConfirmedError,
    SourceError,
    StoreError,
    TrialError,
    TrialMemoryError,
    WishError,
)

_CODES: tuple[tuple[type[BaseException], ExitCode], ...] = (
    (KeyboardInterrupt, ExitCode.INTERRUPTED),
    (BrokenPipeError, ExitCode.OUTPUT_CLOSED),
    (UsageError, ExitCode.USAGE),
    (AnswerRefusedError, ExitCode.REQUEST),
    (PortError, ExitCode.RESOURCES),
    (ServerGoneError, ExitCode.RESOURCES),
    (ConfigError, ExitCode.USAGE),
    (UnsupportedError, ExitCode.UNSUPPORTED),
    (RequestError, ExitCode.REQUEST),
    (ResourceError, ExitCode.RESOURCES),
    (AcceleratorError, ExitCode.RESOURCES),
    (ModelFileError, ExitCode.MODEL_FILE),
    (EngineError, ExitCode.MODEL_FILE),  # weights that compute nonsense
    (SourceError, ExitCode.MODEL_FILE),
    (FactsError, ExitCode.USAGE),
    (WishError, ExitCode.USAGE),
    (DoesNotFitError, ExitCode.RESOURCES),
    (TrialMemoryError, ExitCode.RESOURCES),
    (TrialError, ExitCode.MODEL_FILE),
    (NotConfirmedError, ExitCode.INTERRUPTED),
    (CancelledError, ExitCode.INTERRUPTED),
    (ProfileError, ExitCode.USAGE),
    (HomeFolderError, ExitCode.RESOURCES),
    (FetchError, ExitCode.FETCH),
    (StoreError, ExitCode.MODEL_FILE),
    (FileNotFoundError, ExitCode.MODEL_FILE),
    (MemoryError, ExitCode.RESOURCES),
    (OSError, ExitCode.RESOURCES),
)
"""The first that fits counts."""


def exit_code_of(error: BaseException) -> ExitCode:
    if isinstance(error, ServerStartError):
        return ExitCode(error.exit_code)
    return next((code for kind, code in _CODES if isinstance(error, kind)), ExitCode.UNEXPECTED)


def describe(error: BaseException) -> str:
    """One line about an error: what is wrong, and what to do."""
    if isinstance(error, MemoryError):
        return "out of memory: ask for a smaller --context, take a smaller model, or close something"
    if isinstance(error, OSError):
        return _describe_os_error(error)
    text = " ".join(str(error).split())
    if isinstance(error, DoesNotFitError):
        return f"{text}; {error.advice}"
    if isinstance(error, (ConfigError, WishError)):
        return as_typed(text)
    if exit_code_of(error) is ExitCode.UNEXPECTED:
        return f"unexpected {type(error).__name__}: {text} (`ktdesk --debug ...` shows where; please report it)"
    return text


def _describe_os_error(error: OSError) -> str:
    where = f"{error.filename}: " if error.filename else ""
    advice = {
        errno.ENOSPC: "; make room on that disk",
        errno.EDQUOT: "; make room on that disk",
        errno.ENOMEM: "; take a smaller model, or close something",
        errno.EMFILE: "; raise ulimit -n",
    }.get(error.errno or 0, "")
    return f"{where}{error.strerror or error}{advice}"
