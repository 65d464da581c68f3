"""Which engine runs a model, and what is said where the one that could is not installed."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from llamacpp_models import write_gemma

from ktdesk_engine.config import EngineConfig
from ktdesk_engine.engine import Engine
from ktdesk_engine.engine_choice import load_engine
from ktdesk_engine.errors import ConfigError, UnsupportedError
from ktdesk_engine.llamacpp.extra import REQUIREMENT

SMALL = EngineConfig(num_threads=1, context=64)


def test_a_model_that_ours_knows_runs_on_ours(tiny_model: Callable[[str], Path]) -> None:
    with load_engine(tiny_model("llama-moe"), SMALL) as engine:
        assert isinstance(engine, Engine)
        assert engine.config.engine == "ktdesk"
        assert engine.missing == ()


def test_without_the_extra_the_error_names_the_command_that_installs_it(tmp_path: Path) -> None:
    path = write_gemma(tmp_path / "gemma.gguf")
    with pytest.raises(UnsupportedError, match=rf"'gemma'.*pip install '{re.escape(REQUIREMENT)}'"):
        load_engine(path, SMALL)
    with pytest.raises(UnsupportedError, match="pip install"):
        load_engine(path, replace(SMALL, engine="llamacpp"))
    with pytest.raises(UnsupportedError) as refused:
        load_engine(path, replace(SMALL, engine="ktdesk"))
    assert "pip install" not in str(refused.value)


def test_the_command_installs_what_the_extra_names() -> None:
    project = (Path(__file__).parents[2] / "pyproject.toml").read_text()
    assert f'llamacpp = [\n  "{REQUIREMENT}",\n]' in project


def test_an_engine_of_another_name_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"auto, ktdesk, llamacpp: 'vllm'"):
        EngineConfig(engine="vllm")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "settings",
    [
        {"accelerator": "host-thread"},
        {"accelerator": "cuda", "accelerator_experts": 3},
        {"defer": 1},
        {"defer": "auto"},
        {"experts_used": 2},
        {"min_tile_rows": 3},
    ],
    ids=lambda settings: next(iter(settings)),
)
def test_settings_of_ours_are_refused_for_llamacpp_before_it_is_asked_for(
    settings: dict[str, object], tiny_model: Callable[[str], Path]
) -> None:
    name = next(iter(settings))
    with pytest.raises(ConfigError, match=rf"{name} is for ktdesk's own kernels, .* leave it out \({settings[name]}\)"):
        load_engine(tiny_model("llama-moe"), replace(SMALL, engine="llamacpp", **settings))  # type: ignore[arg-type]
