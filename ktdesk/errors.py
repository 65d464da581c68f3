"""Every error the app raises on purpose; those of engine and wizard pass through it.

AppError
└── UsageError    the command line asks for what makes no sense
"""

from __future__ import annotations


class AppError(Exception):
    """Base of all errors that are raised on purpose."""


class UsageError(AppError):
    """What was asked for makes no sense."""
