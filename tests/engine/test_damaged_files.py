"""A damaged model file of any family is refused in words, or loads and computes; nothing else happens."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from model_variants import in_mixed_types, write_variant
from tiny_models import TINY, TinyExperts, TinyModel
from tiny_shapes import TinyHeads

from ktdesk_engine.config import EngineConfig
from ktdesk_engine.engine import Engine
from ktdesk_engine.errors import EngineError
from ktdesk_engine.gguf.file import GGUFFile

CONFIG = EngineConfig(num_threads=1)
MIXED = "mixed types"
MIXED_SHAPE = TinyModel("llama", 3, 256, 2, TinyHeads(1, 128), 1e4, 128, 256, TinyExperts(2, 1, 256))
"""It has 26 matrices, and there are 25 types."""


@pytest.fixture(scope="module")
def sound_file(tiny_model: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """sound_file(name): a tiny model, or one with another weight type in every tensor."""
    mixed = write_variant(MIXED_SHAPE, tmp_path_factory.mktemp("mixed") / "m.gguf", change=in_mixed_types(0))

    def path_of(name: str) -> Path:
        return mixed if name == MIXED else tiny_model(name)

    return path_of


def load_and_score(path: Path) -> None:
    """Every way out but a clean error fails the test."""
    message = ""
    try:
        with Engine.load(path, CONFIG) as engine:
            scores = engine.score(range(min(engine.context, 8)))
        assert np.isfinite(scores).all()
    except EngineError as error:
        message = str(error)
    assert "\n" not in message
    assert len(message) < 1000


def header_bytes(path: Path) -> int:
    with GGUFFile.open(path) as file:
        return min(tensor.offset for tensor in file.tensors.values())


@pytest.mark.parametrize("name", [*TINY, MIXED])
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_flipped_bytes_end_in_a_clean_load_or_a_clean_error(
    name: str, sound_file: Callable[[str], Path], tmp_path: Path, data: st.DataObject
) -> None:
    source = sound_file(name)
    content, header = bytearray(source.read_bytes()), header_bytes(source)
    # Most of a file is weights, where a flipped byte is a wrong number; what breaks readers is in the header.
    places = st.one_of(st.integers(0, header - 1), st.integers(0, header - 1), st.integers(0, len(content) - 1))
    for place in data.draw(st.lists(places, min_size=1, max_size=4)):
        content[place] = data.draw(st.integers(0, 255))
    damaged = tmp_path / "damaged.gguf"
    damaged.write_bytes(content)
    load_and_score(damaged)


@pytest.mark.parametrize("name", [*TINY, MIXED])
@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(share=st.floats(0, 1, exclude_max=True))
def test_a_truncated_file_is_refused(
    name: str, sound_file: Callable[[str], Path], tmp_path: Path, share: float
) -> None:
    content = sound_file(name).read_bytes()
    damaged = tmp_path / "truncated.gguf"
    damaged.write_bytes(content[: math.floor(share * len(content))])
    with pytest.raises(EngineError, match=r"truncated\.gguf"):
        Engine.load(damaged, CONFIG)
