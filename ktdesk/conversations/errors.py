"""Errors of what is kept.

ConversationError
├── DamagedStoreError the database cannot be read
├── ImportFormatError  a file holds no conversations that are known here
└── NotSavedError     something could not be written
"""

from __future__ import annotations

from ktdesk.errors import AppError


class ConversationError(AppError):
    """Base of all."""


class DamagedStoreError(ConversationError):
    """The database cannot be read."""


class ImportFormatError(ConversationError):
    """A file holds no conversations that are known here."""


class NotSavedError(ConversationError):
    """Something could not be written."""
