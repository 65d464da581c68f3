"""What MODEL may name on a hub: a repository, with or without a quantization, or the URL of a file."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from ktdesk_wizard.hub.http import DEFAULT_ENDPOINT, endpoint

_REPOSITORY = re.compile(r"(?P<id>[\w.-]+/[\w.-]+)(?::(?P<quantization>[\w.-]*))?", re.ASCII)
"""Hubs know no other letters."""
_HUB_PATH = re.compile(
    r"/(?P<id>[\w.-]+/[\w.-]+)(?:/(?:resolve|blob|raw|tree)/(?P<revision>[^/]+)(?:/(?P<path>.+))?)?/?"
)
HUB_HOSTS = ("huggingface.co", "hf.co", "www.huggingface.co")


@dataclass(frozen=True)
class RepositoryName:
    id: str
    """OWNER/NAME"""
    quantization: str | None = None
    """None: to be chosen."""
    revision: str | None = None
    """None: the hub's default branch."""
    path: str | None = None
    """Of one file that was named. The set that it belongs to is meant."""

    def __str__(self) -> str:
        return self.id if self.quantization is None else f"{self.id}:{self.quantization}"


@dataclass(frozen=True)
class UrlName:
    url: str

    def __str__(self) -> str:
        return self.url


HubName = RepositoryName | UrlName


def parse_name(model: str) -> HubName | None:
    """None for what is neither: a file, or a name of the catalogue."""
    model = model.strip()  # as it was copied from somewhere
    if re.match(r"https?://", model):
        return _of_hub(model) or UrlName(model)
    for host in HUB_HOSTS:
        model = model.removeprefix(f"{host}/")
    found = _REPOSITORY.fullmatch(model)
    if found is None or model.startswith((".", "~")) or model.endswith(".gguf"):
        return None
    return RepositoryName(found["id"], found["quantization"] or None)


def _of_hub(url: str) -> RepositoryName | None:
    """A page or file of the hub is its repository, so that its hash is known."""
    parts = urlsplit(url)
    own = {urlsplit(address).netloc for address in (DEFAULT_ENDPOINT, endpoint())}
    found = _HUB_PATH.fullmatch(parts.path)
    if parts.netloc not in {*own, *HUB_HOSTS} or found is None or found["id"].startswith(("datasets/", "spaces/")):
        return None
    path = None if found["path"] is None else unquote(found["path"])
    return RepositoryName(found["id"], None, found["revision"], path)
