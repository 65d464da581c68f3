"""With `deterministic`, not a bit of an answer depends on who else is answered, or on what was cached."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from model_variants import in_types, write_variant
from tiny_shapes import TinyExperts, TinyHeads, TinyLatent, TinyModel

from ktdesk_engine.answer import StreamEvent
from ktdesk_engine.config import Compute, EngineConfig, Request, SamplingConfig
from ktdesk_engine.engine import Engine
from ktdesk_engine.engine_thread import EngineThread
from ktdesk_engine.errors import ConfigError
from ktdesk_engine.kernels.pools import NEVER
from ktdesk_engine.prefix_cache.limits import CacheLimits
from ktdesk_engine.quants.formats import WeightType
from ktdesk_engine.sampler import TokenLogprobs
from ktdesk_engine.scheduler.limits import SchedulerLimits

GREEDY = SamplingConfig(temperature=0)
TYPES = (WeightType.Q4_K, WeightType.Q6_K, WeightType.BF16, WeightType.Q8_0, WeightType.F32)
EXPERTS = TinyExperts(4, 2, 256)
SHAPES = {
    "llama": TinyModel("llama", 2, 256, 4, TinyHeads(2, 64), 1e6, 64, 256, EXPERTS),
    "deepseek2": TinyModel(
        "deepseek2", 2, 256, 2, TinyLatent(256, 256, nope=256, value=256), 1e4, 64, 256, EXPERTS, dense_layers=1
    ),
}
CONFIG = EngineConfig(num_threads=2, prefill_chunk=100, num_sequences=3, deterministic=True)


@pytest.fixture(scope="module", params=SHAPES)
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With weights of many types: those that are multiplied as bytes, as floats, and on tiles where there are any."""
    path = tmp_path_factory.mktemp("deterministic") / "model.gguf"
    change = in_types(lambda index: TYPES[index % len(TYPES)])
    return write_variant(SHAPES[request.param], path, {"context_length": 512}, change)


class Said(NamedTuple):
    token_ids: list[int]
    logprobs: list[TokenLogprobs]


def said(events: list[StreamEvent]) -> Said:
    return Said([i for event in events for i in event.token_ids], [p for event in events for p in event.logprobs])


def prompt(length: int, seed: int) -> list[int]:
    return np.random.default_rng(seed).integers(0, 256, length).tolist()


def requests() -> list[Request]:
    """Of many lengths, with much in common."""
    beginnings = [prompt(200, 0), prompt(130, 1), []]
    prompts = [beginnings[seed % 3] + prompt(3 + 11 * seed, seed + 9) for seed in range(9)]
    return [Request(tuple(ids), GREEDY, 12, num_logprobs=2, ignore_eos=True) for ids in prompts]


@pytest.mark.parametrize("compute", ["mixed", "bf16", "float32"])
def test_company_and_cache_change_no_bit(model: Path, compute: Compute, tmp_path: Path) -> None:
    config = EngineConfig(**{**vars(CONFIG), "compute": compute})
    with Engine.load(model, config) as engine:
        alone = [said(list(engine.stream(request))) for request in requests()]
        answers = {request: answer.token_ids for request, answer in zip(requests(), alone, strict=True)}
    limits = CacheLimits(disk_bytes=32 << 20, disk_folder=tmp_path)
    for _ in range(2):  # the second time with what the first left on disk
        with EngineThread(Engine.load(model, config), SchedulerLimits(max_running=6), limits) as thread:
            for _ in range(2):  # the second time with what the first left in memory
                streams = [thread.submit(request) for request in requests()]
                assert [said(list(stream)) for stream in streams] == alone
            hits = thread.stats().cache.num_hit_pages
            assert hits.total > 10
            check_that_answers_go_on(thread, answers)
    assert hits.disk > 0


def check_that_answers_go_on(thread: EngineThread, answers: dict[Request, list[int]]) -> None:
    """What decoding left in the cache is what computing a prompt gives: half an answer goes on as it went on."""
    for request, ids in answers.items():
        longer = (*request.token_ids, *ids[:6])
        assert said(list(thread.submit(Request(longer, GREEDY, 6, ignore_eos=True)))).token_ids == ids[6:]


def test_one_kernel_is_left_of_each_operation(model: Path) -> None:
    for wish, decided in (("auto", "int8"), ("mixed", "int8"), ("float32", "float32")):
        with Engine.load(model, EngineConfig(compute=wish, num_threads=1, deterministic=True)) as engine:
            assert engine.config.compute == decided
            assert engine.pool.min_tile_rows == NEVER
            assert engine.pool.min_tile_queries == NEVER


def test_a_number_that_chooses_between_kernels_is_refused() -> None:
    with pytest.raises(ConfigError, match="min_tile_rows chooses"):
        EngineConfig(compute="mixed", min_tile_rows=4, deterministic=True)
