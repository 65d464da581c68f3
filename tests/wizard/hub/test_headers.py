"""Headers by ranges: the model as the engine sees it, without its weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from loopback_hub import Fault, LoopbackHub

from ktdesk_engine.errors import ModelFileError
from ktdesk_engine.gguf.file import GGUFFile
from ktdesk_engine.gguf.header import header_bytes
from ktdesk_wizard.errors import FetchError
from ktdesk_wizard.hub import headers
from ktdesk_wizard.hub.headers import fetch_headers
from ktdesk_wizard.hub.http import Http
from ktdesk_wizard.hub.location import RemoteFile
from ktdesk_wizard.hub.sets import gguf_sets
from ktdesk_wizard.hub.sources import find_repository, sources
from ktdesk_wizard.plan.model import model_of_file

TinyModel = Callable[[str], Path]


@pytest.fixture(autouse=True)
def _small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(headers, "FIRST_BYTES", 1024)
    monkeypatch.setattr(headers, "FIRST_WAIT_SECONDS", 0.01)
    monkeypatch.setattr(headers, "STALL_SECONDS", 0.5)


def files(hub: LoopbackHub, path: Path) -> tuple[RemoteFile, ...]:
    """The repository with this one model in it."""
    hub.add("o/n", "a-F32.gguf", path.read_bytes())
    return gguf_sets(find_repository(Http(), sources(), "o/n", None).files)[0].files


def test_a_header_gives_the_model_that_the_whole_file_gives(
    hub: LoopbackHub, tiny_model: TinyModel, tmp_path: Path
) -> None:
    path = tiny_model("deepseek2-v3")
    shape = fetch_headers(Http(), files(hub, path), tmp_path)
    assert replace(model_of_file(shape.path), source="") == replace(model_of_file(path), source="")
    assert shape.num_bytes == shape.path.stat().st_size == path.stat().st_size
    assert header_bytes(path) <= shape.fetched_bytes <= max(2 * header_bytes(path), 1024)
    assert sum(1 for asked in hub.bytes_asked()) > 1
    with GGUFFile.open(shape.path) as file:
        assert not file.data("output_norm.weight").any()


@pytest.mark.parametrize(
    "fault",
    [
        Fault(cut_after=100),
        Fault(stall_after=100, stall_seconds=2),
        Fault(status=503),
        Fault(lie=True),
        Fault(ignore_range=True),
        Fault(encoding="gzip"),
        Fault(claim=17),
    ],
    ids=repr,
)
def test_what_goes_wrong_in_passing_is_tried_again(
    hub: LoopbackHub, tiny_model: TinyModel, tmp_path: Path, fault: Fault
) -> None:
    path = tiny_model("llama-moe")
    remote = files(hub, path)
    hub.faults = [None, fault]
    shape = fetch_headers(Http(), remote, tmp_path)
    size = shape.fetched_bytes
    assert shape.path.read_bytes()[:size] == path.read_bytes()[:size]


def test_a_file_that_is_no_gguf_is_told_after_its_first_bytes(hub: LoopbackHub, tmp_path: Path) -> None:
    (tmp_path / "page").write_bytes(b"<html>" + b" " * 100_000)
    with pytest.raises(ModelFileError, match=r"a-F32\.gguf: not a GGUF file but a web page .* \(as 127"):
        fetch_headers(Http(), files(hub, tmp_path / "page"), tmp_path)
    assert len(hub.bytes_asked()) == 1


def test_a_hub_that_stays_away_is_given_up(hub: LoopbackHub, tiny_model: TinyModel, tmp_path: Path) -> None:
    remote = files(hub, tiny_model("llama-moe"))
    hub.fault_for = lambda asked: Fault(status=500)
    with pytest.raises(FetchError, match=r"a-F32\.gguf: 127\.0\.0\.2:\d+ answered 500, 4 times"):
        fetch_headers(Http(), remote, tmp_path)


def test_where_a_header_ends_is_known_from_any_longer_beginning(tiny_model: TinyModel, tmp_path: Path) -> None:
    data = tiny_model("llama-moe").read_bytes()
    length = header_bytes(tiny_model("llama-moe"))
    path = tmp_path / "part.gguf"
    for cut in (length, length + 1, length + 5000):
        path.write_bytes(data[:cut])
        assert header_bytes(path) == length
    for cut in (8, 100, length // 2, length - 9, length - 1):
        path.write_bytes(data[:cut])
        with pytest.raises(ModelFileError):
            header_bytes(path)


def test_where_headers_cannot_be_kept_the_folder_is_named(
    hub: LoopbackHub, tiny_model: TinyModel, tmp_path: Path
) -> None:
    """As on a disk that takes no file so long, or is full."""
    model = files(hub, tiny_model("llama-moe"))
    (tmp_path / "a-F32.gguf").mkdir()
    with pytest.raises(FetchError, match="headers cannot be kept there"):
        fetch_headers(Http(), model, tmp_path)
