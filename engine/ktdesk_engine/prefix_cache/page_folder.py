"""The folder of page files as a whole: what lies in it, by model, for the store and for `ktdesk cache`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from ktdesk_engine.prefix_cache.page_file import PARTIAL_SUFFIX, SUFFIX
from ktdesk_engine.prefix_cache.pages import DIGEST_BYTES

_HEX = rf"[0-9a-f]{{{2 * DIGEST_BYTES}}}"
_PAGE = re.compile(rf"{_HEX}/[0-9a-f]{{2}}/{_HEX}({re.escape(SUFFIX)}|{re.escape(PARTIAL_SUFFIX)})")
_PATTERN = "*/*/*"
NAME_FILE = "model"
MAX_FOLDERS = 9


class StoredPage(NamedTuple):
    relative_path: str
    num_bytes: int
    used_ns: int
    """When it was last used: the time of the file."""

    @property
    def fingerprint(self) -> str:
        return self.relative_path.partition("/")[0]


def folders_of(folder: Path) -> list[Path]:
    """For those who cache at the same time: the folder itself, and numbered ones in it, each for one at a time."""
    return [folder, *(folder / str(number) for number in range(2, MAX_FOLDERS + 1))]


def stored_pages(folder: Path) -> list[StoredPage]:
    """The longest unused first. Files with other names are not ours, and stay unseen."""
    pages = []
    for path in _page_paths(folder, SUFFIX):
        stat = path.stat()
        pages.append(StoredPage(path.relative_to(folder).as_posix(), stat.st_size, stat.st_mtime_ns))
    return sorted(pages, key=lambda page: page.used_ns)


def remove_partial_files(folder: Path) -> None:
    """What a killed process left."""
    for path in _page_paths(folder, PARTIAL_SUFFIX):
        path.unlink()


def _page_paths(folder: Path, suffix: str) -> Iterator[Path]:
    for path in folder.glob(_PATTERN + suffix):
        if _PAGE.fullmatch(path.relative_to(folder).as_posix()) and path.is_file():
            yield path


class StoredModel(NamedTuple):
    """The pages of one fingerprint."""

    fingerprint: str
    name: str
    """Of the model, as a person knows it."""
    num_pages: int
    num_bytes: int
    used_ns: int
    """When the last of them was used."""


def stored_models(folder: Path) -> list[StoredModel]:
    """The longest unused first."""
    by_fingerprint: dict[str, list[StoredPage]] = {}
    for page in stored_pages(folder):
        by_fingerprint.setdefault(page.fingerprint, []).append(page)
    models = [_stored_model(folder, fingerprint, pages) for fingerprint, pages in by_fingerprint.items()]
    return sorted(models, key=lambda model: model.used_ns)


def name_model(folder: Path, fingerprint: bytes, name: str) -> None:
    """Says beside the pages of a fingerprint whose they are."""
    path = folder / fingerprint.hex() / NAME_FILE
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(name, encoding="utf-8")


def remove_pages(folder: Path, fingerprint: str) -> int:
    """Deletes a model's pages, and says how many bytes that freed. Nobody else may have the folder (`lock_folder`)."""
    num_bytes = 0
    for page in stored_pages(folder):
        if page.fingerprint == fingerprint:
            (folder / page.relative_path).unlink()
            num_bytes += page.num_bytes
    return num_bytes


def _stored_model(folder: Path, fingerprint: str, pages: list[StoredPage]) -> StoredModel:
    try:
        name = (folder / fingerprint / NAME_FILE).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        name = "unknown"
    num_bytes = sum(page.num_bytes for page in pages)
    return StoredModel(fingerprint, name, len(pages), num_bytes, max(page.used_ns for page in pages))
