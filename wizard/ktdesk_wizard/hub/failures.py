"""What went wrong with one request: for good (a FetchError), or in passing.

PassingError        the same request may work later
├── StallError      no bytes came for too long
├── LieError        the answer is not what was asked for
└── ExpiredError    the address has run out: the file must be located again
"""

from __future__ import annotations

from collections.abc import Mapping
from email.utils import parsedate_to_datetime

MAX_RETRY_AFTER_SECONDS = 300.0


class PassingError(Exception):
    def __init__(self, what: str, wait_seconds: float | None = None) -> None:
        super().__init__(what)
        self.wait_seconds = wait_seconds
        """That the server asked for. None: it did not."""


class StallError(PassingError):
    """No bytes came for too long."""


class LieError(PassingError):
    """The answer is not what was asked for."""


class ExpiredError(PassingError):
    """The address has run out."""


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds, from a number or a date. None where nothing of use is said."""
    text = headers.get("retry-after", "")
    try:
        return min(max(float(text), 0.0), MAX_RETRY_AFTER_SECONDS)
    except ValueError:
        pass
    try:
        then = parsedate_to_datetime(text)
    except (TypeError, ValueError):
        return None
    import datetime

    seconds = (then - datetime.datetime.now(then.tzinfo)).total_seconds()
    return min(max(seconds, 0.0), MAX_RETRY_AFTER_SECONDS)


def described(error: Exception) -> str:
    """Of an error of the client's, in few words."""
    text = " ".join(str(error).split())
    return text or type(error).__name__
