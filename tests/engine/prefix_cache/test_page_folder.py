"""What `ktdesk cache` shows and deletes."""

from __future__ import annotations

from pathlib import Path

from fake_pool import content_of

from ktdesk_engine.prefix_cache.page_file import HEADER, PageName, write_page_file
from ktdesk_engine.prefix_cache.page_folder import name_model, remove_pages, stored_models
from ktdesk_engine.prefix_cache.pages import DIGEST_BYTES, chained_digest

FIRST, SECOND = b"1" * DIGEST_BYTES, b"2" * DIGEST_BYTES
FILE_BYTES = HEADER.size + 1 + 8


def write(folder: Path, fingerprint: bytes, keys: bytes) -> None:
    for key in keys:
        name = PageName(fingerprint, chained_digest(fingerprint, bytes([key])), bytes([key]))
        write_page_file(folder, name, content_of([bytes([key])]))


def test_pages_are_listed_and_deleted_by_model(tmp_path: Path) -> None:
    write(tmp_path, FIRST, b"abc")
    write(tmp_path, SECOND, b"a")
    name_model(tmp_path, FIRST, "Qwen3 30B")
    first, second = sorted(stored_models(tmp_path))
    assert (first.name, first.num_pages, first.num_bytes) == ("Qwen3 30B", 3, 3 * FILE_BYTES)
    assert (second.name, second.num_pages) == ("unknown", 1)
    assert remove_pages(tmp_path, first.fingerprint) == 3 * FILE_BYTES
    assert [model.fingerprint for model in stored_models(tmp_path)] == [SECOND.hex()]


def test_a_folder_that_is_not_there_has_no_pages(tmp_path: Path) -> None:
    assert stored_models(tmp_path / "none") == []
