"""What a repository has, as its hub lists it: through huggingface_hub, with its errors put into words."""

from __future__ import annotations

import difflib
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import quote, urlsplit

from ktdesk_wizard.errors import FetchError, RefusedError
from ktdesk_wizard.hub.failures import described, retry_after
from ktdesk_wizard.hub.http import DEFAULT_ENDPOINT, Http
from ktdesk_wizard.hub.location import TOKEN_ADVICE, RemoteFile, gated_text

LIST_SECONDS = 30.0
TRIES = 3
FIRST_WAIT_SECONDS = 1.0
MAX_WAIT_SECONDS = 20.0
T = TypeVar("T")


@dataclass(frozen=True)
class Repository:
    id: str
    source: str
    """The address of the hub."""
    commit: str
    files: tuple[RemoteFile, ...]


@dataclass(frozen=True)
class Hub:
    """One that speaks as huggingface.co does: that itself, or a mirror."""

    endpoint: str
    sends_token: bool = True
    """A mirror that was named beside the hub gets none."""

    @property
    def name(self) -> str:
        return urlsplit(self.endpoint).netloc

    def repository(self, http: Http, repository: str, revision: str | None, similar: Iterable[str] = ()) -> Repository:
        """At one commit, so that all files are of the same. similar: names to compare an unknown one with."""
        from huggingface_hub import HfApi, get_token

        token = get_token() if self.sends_token else None
        api = HfApi(endpoint=self.endpoint, token=token or False)
        try:
            info = _tried(http, lambda: api.model_info(repository, revision=revision, timeout=LIST_SECONDS))
            commit = str(info.sha or revision or "main")
            entries = _tried(http, lambda: list(api.list_repo_tree(repository, recursive=True, revision=commit)))
        except Exception as error:
            raise self._in_words(error, http, repository, revision, token, similar) from error
        files = [self._file(repository, commit, entry, token) for entry in entries if hasattr(entry, "size")]
        return Repository(repository, self.endpoint, commit, tuple(files))

    def _file(self, repository: str, commit: str, entry: Any, token: str | None) -> RemoteFile:
        url = f"{self.endpoint}/{repository}/resolve/{quote(commit, safe='')}/{quote(entry.path)}"
        sha256 = None if entry.lfs is None else str(entry.lfs.sha256)
        page = f"{self.endpoint}/{repository}"
        return RemoteFile(str(entry.path), url, int(entry.size), sha256, token, self.name, page)

    def _in_words(
        self,
        error: Exception,
        http: Http,
        repository: str,
        revision: str | None,
        token: str | None,
        similar: Iterable[str],
    ) -> Exception:
        from huggingface_hub import errors

        if isinstance(error, errors.GatedRepoError):
            return RefusedError(gated_text(f"{self.endpoint}/{repository}", has_token=token is not None))
        if isinstance(error, errors.RepositoryNotFoundError):
            return FetchError(self._unknown(repository, similar))
        if isinstance(error, errors.RevisionNotFoundError):
            return FetchError(f"{repository} has no revision {revision!r} on {self.name}: leave it out for the latest")
        if isinstance(error, errors.HfHubHTTPError):
            return self._status_in_words(error, repository, token, similar)
        if isinstance(error, (errors.HFValidationError, errors.OfflineModeIsEnabled)):
            return FetchError(described(error))
        if isinstance(error, http.errors):
            return FetchError(self._unreachable(error))
        if isinstance(error, (ValueError, KeyError, TypeError)):
            return FetchError(f"{self.name} answered with what is no list of a repository: {self._elsewhere()}")
        return error

    def _status_in_words(self, error: Any, repository: str, token: str | None, similar: Iterable[str]) -> FetchError:
        """A hub says 401 also where there is nothing, so that nobody learns what is private."""
        status = error.response.status_code
        if status == 404 or (status == 401 and token is None):
            return FetchError(self._unknown(repository, similar))
        if status in (401, 403):
            return RefusedError(f"{self.name} refused {repository} ({status}): {TOKEN_ADVICE}")
        return FetchError(f"{self.name} answered {status} for {repository}, {TRIES} times: {self._elsewhere()}")

    def _unknown(self, repository: str, similar: Iterable[str]) -> str:
        low = {name.lower(): name for name in similar}
        close = [low[name] for name in difflib.get_close_matches(repository.lower(), low, n=3, cutoff=0.6)]
        advice = f"did you mean {' or '.join(close)}?" if close else "check the name"
        return f"{self.name} has no repository {repository} that we may see: {advice} ({TOKEN_ADVICE})"

    def _unreachable(self, error: Exception) -> str:
        return f"no connection to {self.name}: {described(error)}; check the network, or {self._elsewhere()}"

    def _elsewhere(self) -> str:
        mirror = "" if self.endpoint == DEFAULT_ENDPOINT else " (HF_ENDPOINT or --source names this one)"
        return f"try another --source, such as modelscope or the address of a mirror{mirror}"


def _tried(http: Http, ask: Callable[[], T]) -> T:
    """Several times where the answer may be another one later."""
    from huggingface_hub.errors import HfHubHTTPError

    for left in reversed(range(TRIES)):
        try:
            return ask()
        except HfHubHTTPError as error:
            status = error.response.status_code
            if not left or (status < 500 and status != 429):
                raise
            asked = retry_after(error.response.headers)
        except http.errors:
            if not left:
                raise
            asked = None
        wait = FIRST_WAIT_SECONDS * 2 ** (TRIES - 1 - left) if asked is None else asked
        time.sleep(min(wait, MAX_WAIT_SECONDS))
    raise AssertionError("the last try returns or raises")
