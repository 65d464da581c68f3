"""`ktdesk cache`: what servers left on disk is listed by model, and deleted."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from fake_pool import content_of
from running import RunKtdesk

from ktdesk.exit_codes import ExitCode
from ktdesk_engine.prefix_cache.disk_store import lock_folder
from ktdesk_engine.prefix_cache.page_file import PageName, write_page_file
from ktdesk_engine.prefix_cache.page_folder import name_model
from ktdesk_engine.prefix_cache.pages import DIGEST_BYTES, chained_digest

SMALL, LARGE = b"\x11" * DIGEST_BYTES, b"\x22" * DIGEST_BYTES


@pytest.fixture
def folder() -> Path:
    """One page of one model, three of another."""
    folder = Path(os.environ["KTDESK_HOME"]) / "prefixes"
    for fingerprint, name, keys in ((SMALL, "small.gguf", b"a"), (LARGE, "large.gguf", b"abc")):
        for key in keys:
            page = PageName(fingerprint, chained_digest(fingerprint, bytes([key])), bytes([key]))
            write_page_file(folder, page, content_of([bytes([key])]))
        name_model(folder, fingerprint, name)
    return folder


def num_pages(ktdesk: RunKtdesk) -> dict[str, int]:
    facts = json.loads(ktdesk("cache", "ls", "--json").out)
    return {model["name"]: model["num_pages"] for model in facts["models"]}


def test_it_is_listed_by_model(ktdesk: RunKtdesk, folder: Path) -> None:
    assert num_pages(ktdesk) == {"small.gguf": 1, "large.gguf": 3}
    lines = ktdesk("cache", "ls").out.splitlines()
    assert {line.split()[-1] for line in lines} == {"small.gguf", "large.gguf"}
    assert {line.split()[0] for line in lines} == {"11" * 6, "22" * 6}


@pytest.mark.parametrize("name", ["large.gguf", "2222"])
def test_one_model_is_deleted_by_name_or_id(ktdesk: RunKtdesk, folder: Path, name: str) -> None:
    assert ktdesk("cache", "rm", name).code == 0
    assert num_pages(ktdesk) == {"small.gguf": 1}


def test_all_is_deleted_on_demand(ktdesk: RunKtdesk, folder: Path) -> None:
    result = ktdesk("cache", "rm", "--all")
    assert result.code == 0
    assert "freed" in result.err
    assert num_pages(ktdesk) == {}
    assert not list(folder.glob("**/*.page"))


@pytest.mark.parametrize("arguments", [(), ("small.gguf", "--all"), ("small.gguf", "unknown"), ("33",)])
def test_what_is_not_clear_deletes_nothing(ktdesk: RunKtdesk, folder: Path, arguments: tuple[str, ...]) -> None:
    result = ktdesk("cache", "rm", *arguments)
    assert result.code == ExitCode.USAGE
    assert "ktdesk cache ls" in result.error
    assert num_pages(ktdesk) == {"small.gguf": 1, "large.gguf": 3}


def test_what_a_server_uses_is_not_deleted(ktdesk: RunKtdesk, folder: Path) -> None:
    with lock_folder(folder):
        result = ktdesk("cache", "rm", "--all")
    assert result.code == ExitCode.RESOURCES
    assert "in use by another ktdesk" in result.error
    assert sum(num_pages(ktdesk).values()) == 4


def test_without_a_cache_there_is_nothing_to_list(ktdesk: RunKtdesk) -> None:
    nothing = ktdesk("cache", "ls")
    assert (nothing.code, nothing.out) == (0, "")
    assert "no prefixes in" in nothing.err
