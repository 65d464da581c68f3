"""Fewer experts a token than a model was trained with: faster, and another network."""

from __future__ import annotations

from types import MappingProxyType

from ktdesk_engine.errors import ConfigError
from ktdesk_engine.gguf.file import GGUFFile


def use_fewer_experts(file: GGUFFile, num_used: int) -> None:
    """From now on the file says that a token uses so many. ConfigError where it has none, or fewer."""
    trained = file.hparams().integer("expert_used_count", 0, minimum=0)
    if not trained:
        raise ConfigError(f"experts_used {num_used}: this model has no experts")
    if num_used > trained:
        raise ConfigError(f"experts_used {num_used}: this model was trained with {trained} experts a token")
    file.metadata = MappingProxyType({**file.metadata, f"{file.architecture}.expert_used_count": num_used})
