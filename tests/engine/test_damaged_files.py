"""A damaged model file of any family is refused in words, or loads and computes; nothing else happens."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tiny_models import TINY

from ktdesk_engine.config import EngineConfig
from ktdesk_engine.engine import Engine
from ktdesk_engine.errors import EngineError
from ktdesk_engine.gguf.file import GGUFFile

TinyModel = Callable[[str], Path]
CONFIG = EngineConfig(num_threads=1)


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


@pytest.mark.parametrize("name", TINY)
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_flipped_bytes_end_in_a_clean_load_or_a_clean_error(
    name: str, tiny_model: TinyModel, tmp_path: Path, data: st.DataObject
) -> None:
    source = tiny_model(name)
    content, header = bytearray(source.read_bytes()), header_bytes(source)
    # Most of a file is weights, where a flipped byte is a wrong number; what breaks readers is in the header.
    places = st.one_of(st.integers(0, header - 1), st.integers(0, header - 1), st.integers(0, len(content) - 1))
    for place in data.draw(st.lists(places, min_size=1, max_size=4)):
        content[place] = data.draw(st.integers(0, 255))
    damaged = tmp_path / "damaged.gguf"
    damaged.write_bytes(content)
    load_and_score(damaged)


@pytest.mark.parametrize("name", TINY)
@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(share=st.floats(0, 1, exclude_max=True))
def test_a_truncated_file_is_refused(name: str, tiny_model: TinyModel, tmp_path: Path, share: float) -> None:
    content = tiny_model(name).read_bytes()
    damaged = tmp_path / "truncated.gguf"
    damaged.write_bytes(content[: math.floor(share * len(content))])
    with pytest.raises(EngineError, match=r"truncated\.gguf"):
        Engine.load(damaged, CONFIG)
