"""What huggingface_hub's cache has of a repository: enough to adopt it where nothing may be asked of the network.

<cache>/models--OWNER--NAME/refs/main              the commit
<cache>/models--OWNER--NAME/snapshots/COMMIT/...   links to
<cache>/models--OWNER--NAME/blobs/SHA256
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from ktdesk_wizard.errors import FetchError
from ktdesk_wizard.hub.location import RemoteFile
from ktdesk_wizard.hub.repository import Repository

_SHA256 = re.compile(r"[0-9a-f]{64}")


def cached_repository(cache: Path, repository: str, revision: str | None) -> Repository:
    """FetchError where it has none."""
    folder = cache / f"models--{repository.replace('/', '--')}"
    commit = _commit(folder, revision or "main")
    files = tuple(_files(folder / "snapshots" / commit)) if commit else ()
    if not files:
        raise FetchError(
            f"HF_HUB_OFFLINE is set, and neither the store nor {cache} has {repository}: unset it to fetch"
        )
    return Repository(repository, "the cache of huggingface_hub", commit, files)


def _commit(folder: Path, revision: str) -> str:
    if (folder / "snapshots" / revision).is_dir():
        return revision
    try:
        return (folder / "refs" / revision).read_text().strip()
    except OSError:
        return ""


def _files(snapshot: Path) -> Iterator[RemoteFile]:
    for parent, _, names in os.walk(snapshot):
        for name in names:
            path = Path(parent, name)
            blob = path.resolve()
            if blob.is_file() and _SHA256.fullmatch(blob.name):
                within = path.relative_to(snapshot).as_posix()
                yield RemoteFile(within, blob.as_uri(), blob.stat().st_size, blob.name, None, "the cache")
