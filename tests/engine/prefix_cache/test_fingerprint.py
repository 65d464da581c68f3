"""Pages of one model are never taken for those of another."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from ktdesk_engine.config import EngineConfig
from ktdesk_engine.gguf.file import GGUFFile
from ktdesk_engine.prefix_cache.fingerprint import model_fingerprint

CONFIG = EngineConfig(compute="float32", cache_type="float32", isa="scalar")


def fingerprint(path: Path, config: EngineConfig = CONFIG, page_tokens: int = 64, page_bytes: int = 1000) -> bytes:
    with GGUFFile.open(path) as file:
        return model_fingerprint(file, config, page_tokens, page_bytes)


@pytest.fixture
def model(tiny_model: Callable[[str], Path], tmp_path: Path) -> Path:
    return Path(shutil.copy(tiny_model("qwen3"), tmp_path / "model.gguf"))


def test_the_same_file_computed_the_same_way_has_the_same_fingerprint(model: Path) -> None:
    assert fingerprint(model) == fingerprint(model)
    assert fingerprint(model) == fingerprint(model, replace(CONFIG, num_threads=3, prefill_chunk=7, context=99))


@pytest.mark.parametrize(
    "config",
    [
        replace(CONFIG, compute="int8"),
        replace(CONFIG, cache_type="f16"),
        replace(CONFIG, isa="avx2"),
        replace(CONFIG, deterministic=True),
    ],
)
def test_another_way_to_compute_has_another(model: Path, config: EngineConfig) -> None:
    assert fingerprint(model) != fingerprint(model, config)


def test_a_measurement_of_the_machine_makes_no_other_model(model: Path) -> None:
    mixed = replace(CONFIG, compute="mixed")
    assert fingerprint(model, replace(mixed, min_tile_rows=4)) == fingerprint(model, replace(mixed, min_tile_rows=9))


def test_another_shape_of_pages_has_another(model: Path) -> None:
    assert len({fingerprint(model), fingerprint(model, page_tokens=32), fingerprint(model, page_bytes=1001)}) == 3


@pytest.mark.parametrize("place", [0.01, 0.999])
def test_other_bytes_or_another_time_have_another(model: Path, place: float) -> None:
    before, times = fingerprint(model), (model.stat().st_atime_ns, model.stat().st_mtime_ns)
    content = bytearray(model.read_bytes())
    name = content.find(b"tiny qwen3") if place < 0.5 else int(place * len(content))
    content[name] ^= 1
    model.write_bytes(content)
    os.utime(model, ns=times)
    after = fingerprint(model)
    assert after != before
    os.utime(model, ns=(times[0], times[1] + 1))
    assert fingerprint(model) != after
