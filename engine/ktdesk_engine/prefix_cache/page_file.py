"""One page as a file: a header that says what it is, its tokens, its bytes, and a checksum over all of it.

    magic | fingerprint | digest | length of key | length of content | checksum | key | content

Written beside its place and renamed into it: a file with its final name was complete when it got it. What power
loss or a bad disk still tears, the checksum finds.
"""

from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import NamedTuple

import numpy as np
import xxhash

from ktdesk_engine.prefix_cache.pages import DIGEST_BYTES, PageBytes

MAGIC = b"ktpage01"
SUFFIX = ".page"
PARTIAL_SUFFIX = ".part"
HEADER = struct.Struct(f"<8s{DIGEST_BYTES}s{DIGEST_BYTES}sIQQ")


class PageName(NamedTuple):
    """What makes a page the one that was asked for."""

    fingerprint: bytes
    """Of the model and of how it is computed: fingerprint.py."""
    digest: bytes
    key: bytes
    """The page's tokens."""

    @property
    def relative_path(self) -> str:
        digest = self.digest.hex()
        return f"{self.fingerprint.hex()}/{digest[:2]}/{digest}{SUFFIX}"


def file_bytes(name: PageName, content: PageBytes) -> int:
    return HEADER.size + len(name.key) + content.nbytes


def write_page_file(folder: Path, name: PageName, content: PageBytes) -> None:
    """Atomic. OSError where the disk refuses; then nothing is left."""
    path = folder / name.relative_path
    partial = path.with_suffix(PARTIAL_SUFFIX)
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with partial.open("wb") as file:
            file.write(_header(name, content))
            file.write(name.key)
            file.write(content.data)
        os.replace(partial, path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def read_page_file(folder: Path, name: PageName, page_bytes: int) -> PageBytes | None:
    """The page, or None where the file is missing, torn, or not the page that was asked for."""
    try:
        stored = np.fromfile(folder / name.relative_path, np.uint8)
    except OSError:
        return None
    start = HEADER.size + len(name.key)
    if len(stored) != start + page_bytes:
        return None
    content = stored[start:]
    return content if stored[:start].tobytes() == _header(name, content) + name.key else None


def _header(name: PageName, content: PageBytes) -> bytes:
    """What stands before key and content, for exactly these."""
    lengths = len(name.key), content.nbytes
    checksum = xxhash.xxh3_64(struct.pack("<IQ", *lengths))
    for part in (name.fingerprint, name.digest, name.key, content.data):
        checksum.update(part)
    return HEADER.pack(MAGIC, name.fingerprint, name.digest, *lengths, checksum.intdigest())
