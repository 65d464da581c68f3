"""Every error the app raises on purpose; those of engine and wizard pass through it.

AppError
├── PortError        a server cannot listen where it should
├── ServerGoneError  a server ended before its answer did
└── UsageError       the command line asks for what makes no sense
"""

from __future__ import annotations


class AppError(Exception):
    """Base of all errors that are raised on purpose."""


class UsageError(AppError):
    """What was asked for makes no sense."""


class PortError(AppError):
    """A server cannot listen where it should."""


class ServerGoneError(AppError):
    """A server ended before its answer did."""
