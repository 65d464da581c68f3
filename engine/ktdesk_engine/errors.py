"""Every error the engine raises on purpose.

EngineError
├── ModelFileError            the file is damaged, truncated, incomplete or contradicts itself
│   └── MissingShardError     one file of a set is not there
├── UnsupportedError          the file is sound, but holds something that the engine does not know
├── ConfigError               a setting of ours is out of range
├── RequestError              one request cannot be served as asked; the engine goes on
│   ├── ContextOverflowError  prompt and answer do not fit the context
│   ├── BusyError             too many are waiting, or the wait would be too long
│   ├── DeadlineError         the answer was not done in the time that it had
│   ├── StoppingError         the engine takes no more requests, or ended before the answer did
│   └── TemplateError         the chat template failed, or was stopped at a limit
├── ResourceError             not enough memory or disk for what was asked
│   └── InUseError            somebody else has what only one may have
└── AcceleratorError          the accelerator failed, is gone, or cannot do what was asked
    ├── AcceleratorMemoryError    it has not enough memory
    └── AcceleratorLostError      it is gone: nothing more can be computed on it

A message is one line that says what is wrong, where, which value, and what to do.
"""

from __future__ import annotations

from pathlib import Path


class EngineError(Exception):
    """Base of all errors that are raised on purpose."""


class ModelFileError(EngineError):
    """A model file is damaged or contradicts itself."""

    def __init__(self, path: str | Path, problem: str) -> None:
        self.path = Path(path)
        self.problem = problem
        super().__init__(f"{self.path}: {problem}")


class MissingShardError(ModelFileError):
    """A file of a sharded model is missing."""


class UnsupportedError(EngineError):
    """The file is sound but holds something that this engine does not know."""


class ConfigError(EngineError):
    """A setting is out of range."""


class RequestError(EngineError):
    """One request cannot be served as asked."""


class ContextOverflowError(RequestError):
    """Prompt and answer are longer than the context."""


class BusyError(RequestError):
    """Too many requests are waiting, or the wait would be longer than is allowed."""

    def __init__(self, message: str, retry_after_seconds: float) -> None:
        self.retry_after_seconds = retry_after_seconds
        super().__init__(message)


class DeadlineError(RequestError):
    """The answer was not done in the time that it had."""


class StoppingError(RequestError):
    """The engine takes no more requests, or ended before the answer did."""


class TemplateError(RequestError):
    """The chat template failed or was stopped at a limit."""


class ResourceError(EngineError):
    """Not enough memory or disk for what was asked."""


class InUseError(ResourceError):
    """Somebody else has what only one may have."""


class AcceleratorError(EngineError):
    """The accelerator failed, is gone, or cannot do what was asked."""


class AcceleratorMemoryError(AcceleratorError):
    """The accelerator has not enough memory."""


class AcceleratorLostError(AcceleratorError):
    """The accelerator is gone: nothing more can be computed on it. The model has to be loaded anew."""
