"""From a file of a hub to the address that its bytes come from, with its size, ETag and hash.

A hub answers with a redirect to another host, with its own signature in the address: there our token must not go,
and the address runs out after a while. So a file is located once, and again when that happens.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import urljoin, urlsplit

from ktdesk_wizard.errors import FetchError, RefusedError
from ktdesk_wizard.hub.failures import PassingError, described, retry_after
from ktdesk_wizard.hub.http import Http, Response

MAX_REDIRECTS = 8
LOCATE_SECONDS = 30.0
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class RemoteFile:
    """One file at one source."""

    path: str
    """Below the repository's root, or the file's name."""
    url: str
    num_bytes: int | None
    """None: only its server knows."""
    sha256: str | None
    token: str | None = None
    """For this URL's host alone."""
    source: str = ""
    """As messages name it."""
    page: str = ""
    """Where people may ask for access."""


@dataclass(frozen=True)
class Location:
    url: str
    token: str | None
    """None where a redirect led to another host."""
    num_bytes: int
    etag: str | None
    """Of the file at its hub, without quotes. That of another host may be another."""
    sha256: str | None

    @property
    def headers(self) -> dict[str, str]:
        plain = {"Accept-Encoding": "identity"}
        return plain if self.token is None else {**plain, "Authorization": f"Bearer {self.token}"}


def locate(http: Http, file: RemoteFile) -> Location:
    """RefusedError or FetchError where it is of no use to try again, else PassingError."""
    url, token = file.url, file.token
    linked_bytes: int | None = None
    etag: str | None = None
    for _ in range(MAX_REDIRECTS):
        response = _ask(http, url, token)
        if response.status_code >= 400:
            raise failure(response, file)
        etag = etag or _etag(response)
        linked_bytes = _number(response, "x-linked-size") or linked_bytes
        target = response.headers.get("location") if response.status_code >= 300 else None
        if target is None:
            num_bytes = _size(response, file, linked_bytes)
            return Location(url, token, num_bytes, etag, file.sha256 or _as_sha256(etag))
        target = urljoin(url, target)
        _check_safe(url, target)
        if _host(target) != _host(url):
            token = None
        if linked_bytes is not None and token is None:  # the hub has said all; the other host is asked for ranges
            _check_size(file, linked_bytes)
            return Location(target, None, linked_bytes, etag, file.sha256 or _as_sha256(etag))
        url = target
    raise FetchError(f"{file.url}: more than {MAX_REDIRECTS} redirects; try another source")


def _ask(http: Http, url: str, token: str | None) -> Response:
    """HEAD, or where a server has none, the first byte. Only headers are looked at."""
    headers = Location(url, token, 0, None, None).headers
    try:
        response = http.head(url, headers, LOCATE_SECONDS)
        if response.status_code in (405, 501):
            with http.stream(url, {**headers, "Range": "bytes=0-0"}, LOCATE_SECONDS) as response:
                return response
        return response
    except http.errors as error:
        raise PassingError(f"no connection to {_host(url)}: {described(error)}") from error


def failure(response: Response, file: RemoteFile) -> Exception:
    """What an answer of 400 or more means for a file."""
    status = response.status_code
    host = file.source or _host(file.url)
    if status == 429:
        return PassingError(f"{host} asks to be left alone for a while (429)", retry_after(response.headers))
    if status >= 500 or status == 408:
        return PassingError(f"{host} answered {status}", retry_after(response.headers))
    if status in (401, 403):
        return RefusedError(_refusal(response, file, host))
    if status in (404, 410):
        return FetchError(f"{host} has no {file.path} (it answered {status}): check the name, or pull again")
    return FetchError(f"{host} answered {status} for {file.path}: try again later, or another source")


def _refusal(response: Response, file: RemoteFile, host: str) -> str:
    """With what to do about it."""
    page = file.page or file.url
    if response.headers.get("x-error-code") == "GatedRepo":
        return gated_text(page, has_token=file.token is not None)
    if file.token is None:
        return f"{host} refused {file.path} ({response.status_code}): {TOKEN_ADVICE}"
    return f"{host} refused {file.path} ({response.status_code}): the token may not read it; ask for access at {page}"


TOKEN_ADVICE = "if it is private or gated, set HF_TOKEN to a token that may read it, or log in with `hf auth login`"


def gated_text(page: str, *, has_token: bool) -> str:
    if has_token:
        return f"access to {page} is granted by its owner, and your token has none: accept its terms there, then pull"
    return (
        f"access to {page} is granted by its owner: accept its terms there, make a token in your account's settings, "
        "set HF_TOKEN to it (or run `hf auth login`), then pull"
    )


def _size(response: Response, file: RemoteFile, linked_bytes: int | None) -> int:
    """As the hub says it, else the length of the answer: of a range, its total."""
    content_range = re.fullmatch(r"bytes \d+-\d+/(\d+)", response.headers.get("content-range", ""))
    own = int(content_range.group(1)) if content_range else _number(response, "content-length")
    num_bytes = linked_bytes or own
    if num_bytes is None:
        raise FetchError(f"{file.url}: its server does not say how large it is; fetch it with another program")
    _check_size(file, num_bytes)
    return num_bytes


def _check_size(file: RemoteFile, num_bytes: int) -> None:
    if file.num_bytes is not None and num_bytes != file.num_bytes:
        raise FetchError(
            f"{file.source}: {file.path} has {num_bytes:,} bytes, but the repository's list says "
            f"{file.num_bytes:,}: it was replaced a moment ago; pull again"
        )


def _check_safe(url: str, target: str) -> None:
    if urlsplit(url).scheme == "https" and urlsplit(target).scheme != "https":
        raise FetchError(f"{_host(url)} sends us on to {urlsplit(target).scheme}://, which anybody could read along")


def _etag(response: Response) -> str | None:
    text = response.headers.get("x-linked-etag") or response.headers.get("etag")
    return None if text is None else text.removeprefix("W/").strip('"')


def _as_sha256(etag: str | None) -> str | None:
    return etag if etag is not None and _SHA256.fullmatch(etag) else None


def _number(response: Response, name: str) -> int | None:
    text = response.headers.get(name, "")
    return int(text) if text.isdigit() else None


def _host(url: str) -> str:
    return urlsplit(url).netloc
