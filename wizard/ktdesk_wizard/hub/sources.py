"""Where models are fetched from, in the order of the user's wish: the hub, its mirrors, ModelScope.

The first that knows the repository says what is in it. The others serve files of the same size and SHA-256.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Protocol

from ktdesk_wizard.errors import FetchError, RefusedError, WishError
from ktdesk_wizard.hub.http import Http, endpoint
from ktdesk_wizard.hub.location import RemoteFile
from ktdesk_wizard.hub.modelscope import ModelScope, modelscope_address
from ktdesk_wizard.hub.repository import Hub, Repository

SOURCES_VARIABLE = "KTDESK_SOURCES"


class Source(Protocol):
    @property
    def name(self) -> str: ...

    def repository(
        self, http: Http, repository: str, revision: str | None, similar: Iterable[str] = ()
    ) -> Repository: ...


def sources(wished: Sequence[str] | None = None) -> list[Source]:
    """wished: `hub`, `modelscope`, or addresses of mirrors. None: KTDESK_SOURCES, else the hub alone."""
    words = list(wished or os.environ.get(SOURCES_VARIABLE, "").split() or ["hub"])
    return [_source(word) for word in words]


def _source(word: str) -> Source:
    if word == "hub":
        return Hub(endpoint())
    if word == "modelscope":
        return ModelScope(modelscope_address())
    if word.startswith(("https://", "http://")):
        return Hub(word.rstrip("/"), sends_token=False)
    raise WishError(f"a source is hub, modelscope, or the address of a mirror (https://...): {word!r}")


def find_repository(
    http: Http, given: Sequence[Source], name: str, revision: str | None, similar: Iterable[str] = ()
) -> Repository:
    """From the first source that answers. Where none does, the first one's error. Who refuses is not passed by."""
    first, *others = given
    try:
        return first.repository(http, name, revision, similar)
    except RefusedError:
        raise
    except FetchError as error:
        if not others:
            raise
        failed = error
    try:
        return find_repository(http, others, name, revision, similar)
    except FetchError:
        raise failed from None


def same_files(http: Http, given: Sequence[Source], repository: Repository) -> dict[str, list[RemoteFile]]:
    """By path, what the other sources have of the same size and hash. A source that fails has none."""
    found: dict[str, list[RemoteFile]] = {}
    for source in given:
        by_content = {(other.sha256, other.num_bytes): other for other in _files(http, source, repository)}
        for file in repository.files:
            other = by_content.get((file.sha256, file.num_bytes))
            if other is not None and other.sha256 is not None:
                found.setdefault(file.path, []).append(replace(other, path=file.path))
    return found


def _files(http: Http, source: Source, repository: Repository) -> tuple[RemoteFile, ...]:
    """None of the source that the repository is from, nor of one that fails."""
    if repository.files and source.name == repository.files[0].source:
        return ()
    try:
        return source.repository(http, repository.id, None).files
    except FetchError:
        return ()
