"""Settings that say how ktdesk's own kernels compute: whoever asks for one is told, before anything is loaded."""

from __future__ import annotations

from ktdesk_engine.config import OF_ACCELERATORS, EngineConfig
from ktdesk_engine.errors import ConfigError

OWN_SETTINGS = (
    *("compute", "min_tile_rows", "isa", "deterministic", "accelerator", "defer", "experts_used"),
    *OF_ACCELERATORS,
)


def refuse_own_settings(config: EngineConfig) -> None:
    """ConfigError where one is not what it is by itself."""
    default = EngineConfig()
    for name in OWN_SETTINGS:
        if getattr(config, name) != getattr(default, name):
            raise ConfigError(
                f"{name} is for ktdesk's own kernels, and this model runs on llama.cpp: leave it out "
                f"({getattr(config, name)})"
            )
