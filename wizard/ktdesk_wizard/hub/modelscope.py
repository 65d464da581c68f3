"""ModelScope as a source: its list of a repository's files has sizes and SHA-256, and it serves ranges."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlsplit

from ktdesk_wizard.errors import FetchError
from ktdesk_wizard.hub.failures import described
from ktdesk_wizard.hub.http import Http
from ktdesk_wizard.hub.location import RemoteFile
from ktdesk_wizard.hub.repository import LIST_SECONDS, Repository

DEFAULT_BRANCH = "master"


def modelscope_address() -> str:
    """MODELSCOPE_DOMAIN, a host or an address, read now."""
    domain = (os.environ.get("MODELSCOPE_DOMAIN") or "www.modelscope.cn").rstrip("/")
    return domain if "://" in domain else f"https://{domain}"


@dataclass(frozen=True)
class ModelScope:
    address: str

    @property
    def name(self) -> str:
        return urlsplit(self.address).netloc

    def repository(self, http: Http, repository: str, revision: str | None, similar: Iterable[str] = ()) -> Repository:
        """Of the same owner and name as at the hub. Revisions of hubs mean nothing here: the hash decides."""
        url = f"{self.address}/api/v1/models/{quote(repository)}/repo/files?Revision={DEFAULT_BRANCH}&Recursive=true"
        try:
            response = http.get(url, {}, LIST_SECONDS)
            if response.status_code == 404:
                raise FetchError(f"{self.name} has no repository {repository}: check the name, or use another --source")
            if response.status_code != 200:
                raise FetchError(f"{self.name} answered {response.status_code} for {repository}; use another --source")
            entries = response.json()["Data"]["Files"]
            files = [self._file(repository, entry) for entry in entries if entry.get("Type") != "tree"]
        except http.errors as error:
            raise FetchError(f"no connection to {self.name}: {described(error)}; use another --source") from error
        except (ValueError, KeyError, TypeError) as error:
            raise FetchError(f"{self.name} answered with what is no list of files; use another --source") from error
        return Repository(repository, self.address, DEFAULT_BRANCH, tuple(files))

    def _file(self, repository: str, entry: dict[str, Any]) -> RemoteFile:
        path = str(entry["Path"])
        url = f"{self.address}/models/{quote(repository)}/resolve/{DEFAULT_BRANCH}/{quote(path)}"
        page = f"{self.address}/models/{repository}"
        return RemoteFile(path, url, int(entry["Size"]), entry.get("Sha256") or None, None, self.name, page)
