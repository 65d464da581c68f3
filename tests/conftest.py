"""Models to test on, made here: no test needs the network, a hub, or files from outside."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from loopback_hub import LoopbackHub, running_hub
from tiny_models import write_tiny

from ktdesk_engine import engine_choice
from ktdesk_engine.llamacpp.extra import install_command, is_installed

DEMO_VARIABLE = "KTDESK_DEMO_MODEL"


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Bytes are named after their argument: a test's name must not hold data, which may differ between workers."""
    return argname if isinstance(val, bytes) else None


@pytest.fixture(autouse=True)
def _own_user_folders(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing a test does reaches the user's folders, nor do the user's settings reach a test."""
    home = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("KTDESK_HOME", str(home))
    for name in ("XDG_DATA_HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME"):
        monkeypatch.setenv(name, str(home / name))
    monkeypatch.delenv("KTDESK_ISA", raising=False)
    for name in ("HF_ENDPOINT", "HF_TOKEN", "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "KTDESK_SOURCES"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_HOME", str(home / "huggingface"))
    monkeypatch.setenv("KTDESK_KEEP_ALIVE", "0")  # no test leaves a server behind


@pytest.fixture(autouse=True)
def _llamacpp_where_it_is_tested(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests marked `llamacpp` need it; for all others it is not there, whether or not it is installed."""
    if request.node.get_closest_marker("llamacpp") is None:
        monkeypatch.setattr(engine_choice, "is_installed", lambda: False)
    elif not is_installed():
        pytest.skip(f"llama.cpp is not installed: {install_command()}")


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """tiny_model(name) is the path of a small random float32 model; `tiny_models.TINY` lists the names."""
    folder = tmp_path_factory.mktemp("tiny")

    def path_of(name: str) -> Path:
        path = folder / f"tiny-{name}.gguf"
        if not path.exists():
            write_tiny(name, path)
        return path

    return path_of


@pytest.fixture(scope="session")
def demo_model() -> Path:
    """The demo model that KTDESK_DEMO_MODEL names."""
    path = os.environ.get(DEMO_VARIABLE)
    if not path:
        pytest.skip(f"{DEMO_VARIABLE} does not name the demo model (`ktdesk demo --fetch-only` makes it)")
    return Path(path)


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[LoopbackHub]:
    """A hub of models on this machine, which HF_ENDPOINT names."""
    with running_hub() as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        monkeypatch.setenv("NO_PROXY", "127.0.0.1,127.0.0.2")
        yield hub
