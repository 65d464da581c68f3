"""Which engine runs a model: ours where it can, else llama.cpp, where the extra `llamacpp` is installed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from ktdesk_engine.config import EngineConfig
from ktdesk_engine.engine import Engine
from ktdesk_engine.errors import UnsupportedError
from ktdesk_engine.gguf.file import GGUFFile
from ktdesk_engine.llamacpp.extra import install_command, is_installed
from ktdesk_engine.llamacpp.own_settings import refuse_own_settings
from ktdesk_engine.load_progress import LoadProgress
from ktdesk_engine.text_engine import TextEngine


def load_engine(
    path: str | Path,
    config: EngineConfig | None = None,
    progress: Callable[[LoadProgress], None] = lambda progress: None,
) -> TextEngine:
    """A model, by the engine that the config names, or that can run it. progress may raise, to cancel."""
    config = config or EngineConfig()
    if config.engine == "llamacpp":
        return load_with_llamacpp(path, config, progress)
    try:
        return Engine.load(path, config, progress)
    except UnsupportedError as error:
        if config.engine == "ktdesk":
            raise
        if not is_installed():
            raise UnsupportedError(f"{error}. {how_to_get_llamacpp()}") from error
    return load_with_llamacpp(path, config, progress)


def load_with_llamacpp(
    path: str | Path, config: EngineConfig, progress: Callable[[LoadProgress], None] = lambda progress: None
) -> TextEngine:
    """UnsupportedError where llama.cpp is not there, or cannot run it; ConfigError for settings that it cannot keep."""
    refuse_own_settings(config)
    if not is_installed():
        raise UnsupportedError(f"llama.cpp is not installed: `{install_command()}` does it")
    from ktdesk_engine.llamacpp.engine import LlamaCppEngine  # it loads the library

    return LlamaCppEngine.load(path, config, progress)


def check_with_llamacpp(file: GGUFFile) -> None:
    """UnsupportedError where llama.cpp is not there, or does not know the model. Loads no weights."""
    if not is_installed():
        raise UnsupportedError(how_to_get_llamacpp())
    from ktdesk_engine.llamacpp.library import LlamaModel
    from ktdesk_engine.llamacpp.text_model import tokenizer_of

    LlamaModel(file.shards[0], vocab_only=True).close()
    tokenizer_of(file)


def how_to_get_llamacpp() -> str:
    return f"llama.cpp may know it: `{install_command()}` lets ktdesk run it there"
