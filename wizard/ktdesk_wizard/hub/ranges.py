"""One range of a file's bytes, read from its location, with what the server says about it checked.

    with open_range(http, location, 0, 1 << 20, stall_seconds=15) as answer:
        for chunk in answer.chunks(): ...

A server that ignores ranges answers with the whole file: then `answer.start` is 0, wherever the range begins.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

from ktdesk_wizard.hub.failures import ExpiredError, LieError, PassingError, StallError, described, retry_after
from ktdesk_wizard.hub.http import Http, Response
from ktdesk_wizard.hub.location import Location

MIN_BYTES_S = 1024.0
"""Less than that, for as long as a stall may last, is a stall."""


class RangeAnswer:
    """The body of an answer whose headers fit what was asked."""

    def __init__(self, response: Response, start: int, end: int, stall_seconds: float) -> None:
        self.response = response
        self.start, self.end = start, end
        """Of what comes, in the file."""
        self._stall_seconds = stall_seconds

    def chunks(self) -> Iterator[bytes]:
        """As they come, never more than was announced. Ends early where the connection is cut: count what came."""
        position = self.start
        window_start, window_position = time.monotonic(), position
        for chunk in self.response.iter_raw():
            if position + len(chunk) > self.end:
                chunk = chunk[: self.end - position]
            position += len(chunk)
            yield chunk
            if position >= self.end:
                return
            now = time.monotonic()
            if now - window_start >= self._stall_seconds:
                if position - window_position < MIN_BYTES_S * (now - window_start):
                    raise StallError(f"less than {MIN_BYTES_S:.0f} bytes a second for {now - window_start:.0f} s")
                window_start, window_position = now, position


@contextmanager
def open_range(http: Http, location: Location, start: int, end: int, *, stall_seconds: float) -> Iterator[RangeAnswer]:
    """end: the byte after the last. PassingError for what may work later, also where the body is cut."""
    headers = {**location.headers, "Range": f"bytes={start}-{end - 1}"}
    host = urlsplit(location.url).netloc
    try:
        with http.stream(location.url, headers, stall_seconds) as response:
            yield _checked(response, location, start, end, stall_seconds)
    except http.errors as error:
        if "Timeout" in type(error).__name__:
            raise StallError(f"{host} sent nothing for {stall_seconds:.0f} s") from error
        raise PassingError(f"the connection to {host} broke: {described(error)}") from error


def read_range(http: Http, location: Location, start: int, end: int, *, stall_seconds: float) -> bytes:
    """All of a small range. PassingError where it does not come whole."""
    with open_range(http, location, start, end, stall_seconds=stall_seconds) as answer:
        found, position = bytearray(), answer.start
        for chunk in answer.chunks():
            found += chunk[max(start - position, 0) : max(end - position, 0)]
            position += len(chunk)
            if position >= end:
                break
    if len(found) != end - start:
        raise PassingError(f"{urlsplit(location.url).netloc} sent {len(found):,} of {end - start:,} bytes")
    return bytes(found)


def _checked(response: Response, location: Location, start: int, end: int, stall_seconds: float) -> RangeAnswer:
    host, status = urlsplit(location.url).netloc, response.status_code
    if status == 206:
        _check_encoding(response, host)
        _check_content_range(response, host, location, start, end)
        return RangeAnswer(response, start, end, stall_seconds)
    if status == 200:
        _check_encoding(response, host)
        length = response.headers.get("content-length", "")
        if length != str(location.num_bytes):
            raise LieError(f"{host} sent something of {length or 'unknown'} bytes instead of the file")
        return RangeAnswer(response, 0, location.num_bytes, stall_seconds)
    raise _status_error(response, host, status)


def _status_error(response: Response, host: str, status: int) -> PassingError:
    if status == 429:
        return PassingError(f"{host} asks to be left alone for a while (429)", retry_after(response.headers))
    if status >= 500:
        return PassingError(f"{host} answered {status}", retry_after(response.headers))
    return ExpiredError(f"{host} answered {status}")


def _check_encoding(response: Response, host: str) -> None:
    encoding = response.headers.get("content-encoding", "identity")
    if encoding != "identity":
        raise LieError(f"{host} sent the file packed ({encoding}), which was not asked for")


def _check_content_range(response: Response, host: str, location: Location, start: int, end: int) -> None:
    text = response.headers.get("content-range", "")
    found = re.fullmatch(r"bytes (\d+)-(\d+)/(\d+|\*)", text)
    expected = f"bytes {start}-{end - 1}/{location.num_bytes}"
    if found is None or (int(found[1]), int(found[2])) != (start, end - 1):
        raise LieError(f"{host} sent {text or 'no Content-Range'} instead of {expected}")
    if found[3] not in ("*", str(location.num_bytes)):
        raise LieError(f"{host} has {found[3]} bytes of the file, where {location.num_bytes} were announced")
