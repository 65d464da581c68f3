"""Deferral against its formula, on the CPU alone and beside an accelerator."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from random_experts import random_mlp, random_routes

from ktdesk_engine import kernels
from ktdesk_engine.backends.cpu import CpuBackend
from ktdesk_engine.config import EngineConfig
from ktdesk_engine.engine import Engine
from ktdesk_engine.errors import ConfigError
from ktdesk_engine.experts.deferral import CpuDeferral, deferral_cell, fewest_that_hide
from ktdesk_engine.kernels.routing import NO_EXPERT, Routes, split_routes
from ktdesk_engine.kv_cache import CachedSequence

TinyPath = Callable[[str], Path]

PROMPT = [*range(40, 52), 1, 2]


def test_the_smallest_weights_are_deferred() -> None:
    pool = kernels.worker_pool(1)
    routes = Routes(np.array([[4, 7, 1, 3]], np.int32), np.array([[0.1, 0.5, 0.2, 0.2]], np.float32))
    now, later = split_routes(pool, routes, deferral_cell(2))
    np.testing.assert_array_equal(now.ids, [[NO_EXPERT, 7, 1, NO_EXPERT]])
    np.testing.assert_array_equal(later.ids, [[4, NO_EXPERT, NO_EXPERT, 3]])


def test_experts_on_the_accelerator_do_not_count_and_two_of_the_cpu_stay() -> None:
    pool = kernels.worker_pool(1)
    routes = Routes(np.array([[0, 1, 2, 3], [2, 3, 4, 5]], np.int32), np.array([[4, 3, 2, 1]] * 2, np.float32))
    slots = np.array([0, 1, -1, -1, -1, 2], np.int32)
    now, later = split_routes(pool, routes, deferral_cell(2), slots)
    np.testing.assert_array_equal(now.ids, [[-1, -1, 2, 3], [2, 3, -1, -1]])
    np.testing.assert_array_equal(later.ids, [[-1, -1, -1, -1], [-1, -1, 4, -1]])


class Layers:
    """Three layers of experts with a deferral of 1 of 3 experts."""

    def __init__(self) -> None:
        self.backend = CpuBackend(kernels.worker_pool(1))
        self.layers: list[Any] = [SimpleNamespace(experts=random_mlp(10 * k), routed=None) for k in range(3)]
        CpuDeferral(self.backend, self.layers, deferral_cell(1))

    def run(self, inputs: list[np.ndarray], is_decode: bool) -> list[np.ndarray]:
        return [
            layer.routed(x, random_routes(len(x), k), is_decode)()
            for k, (layer, x) in enumerate(zip(self.layers, inputs, strict=True))
        ]

    def experts(self, k: int, x: np.ndarray, routes: Routes) -> np.ndarray:
        return self.backend.experts(self.layers[k].experts, x, *routes)


def test_a_layers_deferred_experts_come_with_the_next_layers_output() -> None:
    model = Layers()
    inputs = [np.random.default_rng(k).standard_normal((4, 32)).astype(np.float32) for k in range(3)]
    parts = [split_routes(model.backend.pool, random_routes(4, k), deferral_cell(1)) for k in range(3)]
    now = [model.experts(k, x, parts[k][0]) for k, x in enumerate(inputs)]
    later = [model.experts(k, x, parts[k][1]) for k, x in enumerate(inputs)]
    last = model.experts(2, inputs[2], random_routes(4, 2))
    for _ in range(2):  # nothing is left over from one step to the next
        got = model.run(inputs, is_decode=True)
        for one, want in zip(got, [now[0], now[1] + later[0], last + later[1]], strict=True):
            np.testing.assert_allclose(one, want, rtol=0, atol=1e-5)


def test_nothing_of_a_prompt_is_deferred() -> None:
    model = Layers()
    inputs = [np.random.default_rng(k).standard_normal((4, 32)).astype(np.float32) for k in range(3)]
    for k, got in enumerate(model.run(inputs, is_decode=False)):
        np.testing.assert_array_equal(got, model.experts(k, inputs[k], random_routes(4, k)))


def decoded(path: Path, **settings: Any) -> np.ndarray:
    """Logits of steps behind a prompt."""
    with Engine.load(path, EngineConfig(context=128, num_threads=1, compute="float32", **settings)) as engine:
        sequence = CachedSequence()
        engine.runner.prefill(sequence, PROMPT)
        return np.concatenate([engine.runner.decode([sequence], [token]).copy() for token in range(8)])


@pytest.mark.parametrize("name", ["qwen3moe", "deepseek2-lite"])
def test_it_changes_the_same_on_the_cpu_beside_an_accelerator_and_in_a_recorded_step(
    name: str, tiny_model: TinyPath
) -> None:
    want = decoded(tiny_model(name), defer=1)
    assert np.abs(want - decoded(tiny_model(name))).max() > 1e-3
    for settings in ({"program": False}, {"accelerator": "host-thread", "accelerator_experts": 0}):
        got = decoded(tiny_model(name), defer=1, **settings)
        np.testing.assert_allclose(got, want, rtol=0, atol=3e-5 * np.abs(want).max())


def test_experts_that_all_lie_on_the_accelerator_are_not_deferred(tiny_model: TinyPath) -> None:
    want = decoded(tiny_model("qwen3moe"))
    got = decoded(tiny_model("qwen3moe"), defer=2, accelerator="host-thread")
    np.testing.assert_allclose(got, want, rtol=0, atol=3e-5 * np.abs(want).max())


def test_a_score_is_what_decoding_the_text_gives(tiny_model: TinyPath) -> None:
    config = EngineConfig(context=128, num_threads=1, compute="float32", defer=2)
    with Engine.load(tiny_model("qwen3moe"), config) as engine:
        scores = engine.score(PROMPT)
        sequence = CachedSequence()
        for position, token in enumerate(PROMPT):
            logits = engine.runner.decode([sequence], [token])[0]
            np.testing.assert_allclose(scores[position] - scores[position][0], logits - logits[0], rtol=0, atol=1e-4)


def test_auto_defers_nothing_where_there_is_no_accelerator(tiny_model: TinyPath) -> None:
    with Engine.load(tiny_model("qwen3moe"), EngineConfig(context=128, num_threads=1, defer="auto")) as engine:
        assert engine.config.defer == 0


def test_auto_measures_beside_an_accelerator(tiny_model: TinyPath) -> None:
    config = EngineConfig(context=128, num_threads=1, defer="auto", accelerator="host-thread")
    with Engine.load(tiny_model("qwen3moe"), config) as engine:
        assert engine.config.defer in (0, 1, 2)
        assert engine.experts.num_deferred == engine.config.defer
        assert engine.experts.use is not None
        assert not engine.experts.use.rates().any()  # nobody asked for these steps


def test_auto_takes_the_fewest_of_all_that_the_model_allows(
    tiny_model: TinyPath, monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds = {0: 3.0, 1: 1.01, 2: 1.0}
    monkeypatch.setattr(Engine, "_step_seconds", lambda engine: seconds[engine.experts.num_deferred])
    config = EngineConfig(context=128, num_threads=1, defer="auto", accelerator="host-thread")
    with Engine.load(tiny_model("qwen3moe"), config) as engine:
        assert engine.config.defer == engine.experts.num_deferred == 1


@pytest.mark.parametrize(
    ("seconds", "chosen"), [([3.0, 2.0, 1.0, 1.0], 2), ([1.0, 1.0], 0), ([1.01, 1.0], 0), ([2.0], 0), ([1.0, 2.0], 0)]
)
def test_the_fewest_that_hide_the_cpu_are_enough(seconds: list[float], chosen: int) -> None:
    assert fewest_that_hide(seconds) == chosen


def test_a_model_without_experts_has_none_to_defer(tiny_model: TinyPath) -> None:
    with pytest.raises(ConfigError, match="defer 1: this model has no experts to defer"):
        Engine.load(tiny_model("llama-dense"), EngineConfig(context=128, defer=1))
