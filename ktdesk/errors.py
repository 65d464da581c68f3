"""Every error the app raises on purpose; those of engine and wizard pass through it.

AppError
├── AnswerRefusedError a server refused to answer
├── PortError        a server cannot listen where it should
├── ServerGoneError  a server ended before its answer did
├── ServerStartError a server that was started did not get ready
└── UsageError       the command line asks for what makes no sense
"""

from __future__ import annotations


class AppError(Exception):
    """Base of all errors that are raised on purpose."""


class UsageError(AppError):
    """What was asked for makes no sense."""


class AnswerRefusedError(AppError):
    """A server refused to answer, or failed while it did."""

    def __init__(self, message: str, code: str | None = None) -> None:
        super().__init__(message)
        self.code = code
        """As the server calls the reason, such as `context_length_exceeded`."""


class PortError(AppError):
    """A server cannot listen where it should."""


class ServerGoneError(AppError):
    """A server ended before its answer did."""


class ServerStartError(AppError):
    """A server that was started did not get ready."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code
        """It ended with this."""
