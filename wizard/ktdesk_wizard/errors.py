"""Every error the wizard raises on purpose.

WizardError
├── SourceError       what a model is to be made from is missing, or is not what it should be
├── FactsError        a file of facts about a machine says what no machine has
├── WishError         what is asked for makes no sense
├── FetchError        it could not be fetched: no network, no pip, no such name
│   ├── RefusedError  its source wants to know who asks
│   └── WrongBytesError  it came, and is not what its hash says
├── StoreError        a record of the store is damaged, or names no model
├── DoesNotFitError   a plan needs more memory than there is
├── TrialError        a model could not be loaded, asked or measured
│   └── TrialMemoryError    for want of memory
├── NotConfirmedError the user did not want to go on with a setup
├── CancelledError    the user stopped it
└── HomeFolderError   the user's data folder has no room, or cannot be written

A message is one line that says what is wrong, where, and what to do.
"""

from __future__ import annotations


class WizardError(Exception):
    """Base of all errors that are raised on purpose."""


class SourceError(WizardError):
    """The file to make a model from is missing, damaged or another one."""


class FactsError(WizardError):
    """A file of facts about a machine has an unknown, missing or wrong key."""


class WishError(WizardError):
    """What is asked of a plan, or to be fetched, makes no sense."""


class FetchError(WizardError):
    """A file could not be fetched."""


class RefusedError(FetchError):
    """A source refused: it wants a token, or another one."""


class WrongBytesError(FetchError):
    """A file is not what its hash says, however often it is fetched."""


class StoreError(WizardError):
    """A record of the store cannot be read, or what it says cannot be done."""


class HomeFolderError(WizardError):
    """The data folder has no room, or cannot be written."""


class DoesNotFitError(WizardError):
    """A plan needs more memory than there is."""

    def __init__(self, message: str, change: str | None = None) -> None:
        super().__init__(message)
        self.change = change
        """The smallest that would make it fit. None: nobody knows one."""

    @property
    def advice(self) -> str:
        change = f"it would fit with {self.change}; " if self.change else ""
        return f"{change}--force goes on all the same"


class TrialError(WizardError):
    """A model could not be loaded, asked or measured."""


class TrialMemoryError(TrialError):
    """For want of memory."""


class NotConfirmedError(WizardError):
    """The user did not want to go on."""


class CancelledError(WizardError):
    """The user stopped it."""
