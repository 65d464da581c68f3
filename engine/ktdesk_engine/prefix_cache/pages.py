"""What the tree knows of pages: where they lie, which tokens they hold, and what names them."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

PageBytes = npt.NDArray[np.uint8]

DIGEST_BYTES = 20


class PagePool(Protocol):
    """Pages that a model reads and writes. A page has one owner at a time: a sequence, or the tree."""

    @property
    def page_bytes(self) -> int: ...

    @property
    def num_free_pages(self) -> int: ...

    @property
    def num_ready_pages(self) -> int:
        """Of the free ones, those that cost nobody anything: they have memory, or may have some that others use."""

    def take_page(self) -> int:
        """One of the free pages."""

    def give_back(self, page: int) -> None: ...

    def read_page(self, page: int) -> PageBytes:
        """A copy, of page_bytes."""

    def write_page(self, page: int, content: PageBytes) -> None: ...


def page_keys(token_ids: Sequence[int], page_size: int) -> list[bytes]:
    """For each whole page of a text, its tokens as bytes. A rest that fills no page has none."""
    num_tokens = len(token_ids) // page_size * page_size
    tokens = np.asarray(token_ids[:num_tokens], np.int32).tobytes()
    step = 4 * page_size
    return [tokens[start : start + step] for start in range(0, len(tokens), step)]


def chained_digest(parent: bytes, key: bytes) -> bytes:
    """Names a page by its tokens and all before them. Cryptographic: tokens come from strangers, who must not be
    able to make another prefix with the same name."""
    return hashlib.blake2b(key, digest_size=DIGEST_BYTES, key=parent).digest()
