"""Families are found by their files, and each file can be read alone."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from gguf import GGUFWriter
from tiny_models import TINY

from ktdesk_engine import models
from ktdesk_engine.errors import UnsupportedError
from ktdesk_engine.gguf.file import GGUFFile
from ktdesk_engine.models.registry import families, family_of

FILES = sorted(path for path in Path(models.__path__[0]).glob("*.py") if path.stem not in {"__init__", "registry"})


def test_every_tiny_model_has_a_family_and_every_family_a_tiny_model() -> None:
    assert set(families()) == {model.arch for model in TINY.values()}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_model_files_do_not_import_each_other(path: Path) -> None:
    imported = {
        node.module
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and node.module is not None
    }
    assert {name for name in imported if name.startswith(models.__name__)} <= {f"{models.__name__}.base"}


def test_an_unknown_architecture_is_refused_with_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match=r"odd\.gguf: the architecture 'mamba9'.*deepseek2, .*qwen3moe"):
        family_of(file_of(tmp_path, "mamba9"))


def test_a_damaged_architecture_is_not_shown_at_length(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError) as caught:
        family_of(file_of(tmp_path, "x\n" * 40_000))
    assert len(str(caught.value)) < 1000
    assert "\n" not in str(caught.value)


def file_of(folder: Path, architecture: str) -> GGUFFile:
    writer = GGUFWriter(folder / "odd.gguf", architecture)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return GGUFFile.open(folder / "odd.gguf")
