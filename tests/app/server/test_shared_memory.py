"""What a server says of an accelerator's memory that experts and cache share."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from serving import complete, number, running_server

from ktdesk.server.settings import ServerSettings
from ktdesk_engine.config import EngineConfig
from ktdesk_engine.engine import Engine

CONFIG = EngineConfig(
    compute="float32",
    num_threads=1,
    context=448,
    prefill_chunk=16,
    accelerator="host-thread",
    stream_prompts=False,
)


def tight(path: Path) -> EngineConfig:
    """Room for the cache and two experts."""
    with Engine.load(path, CONFIG) as engine:
        sharing = engine.experts.sharing
        assert sharing is not None
        slot_bytes = (sharing.num_bytes - engine.cache.num_bytes) // sharing.num_slots
        return replace(CONFIG, accelerator_bytes=engine.cache.num_bytes + 2 * slot_bytes + 200_000)


def test_metrics_tell_what_experts_gave_to_the_cache(talker: Path) -> None:
    with contextmanager(running_server)(talker, ServerSettings(port=0, finish_seconds=1), tight(talker)) as served:
        names = ("cache_places", "resident_experts", "expert_bytes", "cache_bytes")
        before = {name: number(served.url, f"accelerator_{name}") for name in names}
        complete(served.url, "abc " * 90)
        assert number(served.url, "accelerator_cache_places") > before["cache_places"]
        assert number(served.url, "accelerator_resident_experts") < before["resident_experts"]
        assert number(served.url, "accelerator_experts_left_total") > 0
        expert_bytes, cache_bytes = (number(served.url, f"accelerator_{name}") for name in names[2:])
        assert expert_bytes < before["expert_bytes"]
        assert cache_bytes > before["cache_bytes"]
        assert expert_bytes + cache_bytes <= number(served.url, "accelerator_shared_bytes")
