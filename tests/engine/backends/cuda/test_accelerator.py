"""The hybrid half's device: slots of experts, the hand-off, and whole tiny models on it."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from random_blocks import random_weight
from tiny_models import write_tiny

torch = pytest.importorskip("torch", reason="the extra gpu is not installed")

from ktdesk_engine import accelerators, kernels  # noqa: E402
from ktdesk_engine.backends.accelerator import HostExperts  # noqa: E402
from ktdesk_engine.backends.backend import Backend  # noqa: E402
from ktdesk_engine.backends.cpu import CpuBackend  # noqa: E402
from ktdesk_engine.backends.cuda.accelerator import CudaAccelerator, as_accelerator  # noqa: E402
from ktdesk_engine.batch import Batch  # noqa: E402
from ktdesk_engine.config import CacheType, EngineConfig  # noqa: E402
from ktdesk_engine.engine import Engine  # noqa: E402
from ktdesk_engine.gguf.file import GGUFFile  # noqa: E402
from ktdesk_engine.kernels import ExpertMlp, ExpertWeight, reference  # noqa: E402
from ktdesk_engine.kernels.handoff import HandOff, HandOffError  # noqa: E402
from ktdesk_engine.kernels.routing import Routes  # noqa: E402
from ktdesk_engine.kv_cache import PAGE_SIZE, CachedSequence, KVCache, LayerCacheShape  # noqa: E402
from ktdesk_engine.models.registry import family_of  # noqa: E402
from ktdesk_engine.quants.formats import WeightType  # noqa: E402
from ktdesk_engine.shared_cache import SharedKVCache  # noqa: E402

H, I, E, K = 64, 32, 5, 2


@pytest.fixture
def accelerator(device: torch.device) -> CudaAccelerator:
    return CudaAccelerator(device, kernels.worker_pool(1))


def floats(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def layer(weight_type: WeightType, seed: int, biased: bool = False) -> HostExperts:
    def part(rows: int, length: int, number: int) -> ExpertWeight:
        rng = np.random.default_rng(seed + number)
        bias = floats(E, rows, seed=number) if biased else None
        return ExpertWeight(random_weight(rng, weight_type, (E, rows, length), 0.2), bias)

    mlp = ExpertMlp(part(I, H, 1), part(I, H, 2), part(H, I, 3))
    return HostExperts(in_file=mlp, in_memory=mlp)


def on(accelerator: CudaAccelerator, array: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(array.copy()).to(accelerator.device)


def test_slots_take_experts_of_any_layer_and_others_add_nothing(accelerator: CudaAccelerator) -> None:
    """Layers of different types: a slot is as large as the largest expert."""
    layers = [layer(WeightType.Q4_0, 10), layer(WeightType.Q8_0, 20, biased=True)]
    slots = as_accelerator(accelerator).expert_slots(layers, 3)
    for slot, (of_layer, expert) in enumerate([(0, 4), (1, 0), (1, 3)]):
        slots.put(slot, of_layer, expert)
    slots.set_table(np.array([[-1, -1, -1, -1, 0], [1, -1, -1, 2, -1]], np.int32))
    x, ids, weights = floats(2, H), np.array([[4, 0], [3, 4]], np.int32), np.abs(floats(2, K, seed=5))
    for number, resident in enumerate([{4}, {0, 3}]):
        routes = Routes(on(accelerator, ids), on(accelerator, weights))
        got = slots.experts(number, on(accelerator, x), routes).cpu().numpy()
        shares = np.where(np.isin(ids, list(resident)), weights, 0).astype(np.float32)
        np.testing.assert_allclose(
            got, reference.expert_mlp(layers[number].in_file, x, ids, shares), rtol=1e-4, atol=1e-4
        )


def test_a_slot_forgets_who_lay_in_it(accelerator: CudaAccelerator) -> None:
    layers = [layer(WeightType.Q5_0, 10)]
    slots = as_accelerator(accelerator).expert_slots(layers, 1)
    x, weights = floats(1, H), np.ones((1, 1), np.float32)
    for expert in (2, 0):
        slots.put(0, 0, expert)
        slots.set_table(np.where(np.arange(E) == expert, 0, -1).astype(np.int32)[None])
        ids = np.array([[expert]], np.int32)
        got = slots.experts(0, on(accelerator, x), Routes(on(accelerator, ids), on(accelerator, weights)))
        want = reference.expert_mlp(layers[0].in_file, x, ids, weights)
        np.testing.assert_allclose(got.cpu().numpy(), want, rtol=1e-4, atol=1e-4)


def test_a_stage_holds_one_layer_after_the_other(accelerator: CudaAccelerator) -> None:
    layers = [layer(WeightType.Q4_1, 10), layer(WeightType.Q8_0, 20), layer(WeightType.Q4_1, 30)]
    stage = as_accelerator(accelerator).expert_stage(layers)
    x, ids, weights = floats(2, H), np.array([[4, 0], [3, 4]], np.int32), np.abs(floats(2, K, seed=5))
    for number, of_layer in enumerate(layers):
        stage.load(number)
        got = stage.experts(number, on(accelerator, x), Routes(on(accelerator, ids), on(accelerator, weights)))
        want = reference.expert_mlp(of_layer.in_file, x, ids, weights)
        np.testing.assert_allclose(got.cpu().numpy(), want, rtol=1e-4, atol=1e-4)


def test_what_is_handed_over_is_there_when_the_flag_is_up(accelerator: CudaAccelerator) -> None:
    hand_off = HandOff(num_layers=2, max_tokens=3, hidden=H, num_used=K)
    accelerator.pin(hand_off)
    x, ids, weights = floats(3, H), np.arange(6, dtype=np.int32).reshape(3, K), floats(3, K, seed=1)
    accelerator.hand_over(hand_off, 1, on(accelerator, x), Routes(on(accelerator, ids), on(accelerator, weights)))
    ready = hand_off.addresses(1).ready - hand_off.memory.ctypes.data
    accelerator.synchronize()
    assert hand_off.memory[ready : ready + 4].view(np.uint32)[0] == 1
    np.testing.assert_array_equal(hand_off.x(1, 3), x)
    np.testing.assert_array_equal(hand_off.ids(1, 3), ids)
    np.testing.assert_array_equal(hand_off.weights(1, 3), weights)
    accelerator.close()


def test_the_device_waits_for_the_cpu_and_takes_its_flag_back(accelerator: CudaAccelerator) -> None:
    hand_off = HandOff(num_layers=1, max_tokens=2, hidden=H, num_used=K)
    accelerator.pin(hand_off)
    done = hand_off.addresses(0).done - hand_off.memory.ctypes.data
    flag = hand_off.memory[done : done + 4].view(np.uint32)

    def answer() -> None:
        hand_off.out(0, 2)[:] = 7
        flag[0] = 1

    later = threading.Timer(0.05, answer)
    later.start()
    got = accelerator.take_back(hand_off, 0, on(accelerator, floats(2, H)))
    accelerator.synchronize()
    later.join()
    assert (got.cpu().numpy() == 7).all()
    assert flag[0] == 0
    accelerator.close()


def test_who_waits_in_vain_says_so(device: torch.device) -> None:
    if device.type == "cuda":
        pytest.skip("a GPU's stream waits without end: the CPU's side lets it go")
    accelerator = CudaAccelerator(device, kernels.worker_pool(1))
    hand_off = HandOff(num_layers=1, max_tokens=1, hidden=H, num_used=K)
    hand_off.native.timeout_ns = 1_000_000
    with pytest.raises(HandOffError, match="in time"):
        accelerator.take_back(hand_off, 0, torch.zeros(1, H))


def logits(path: Path, backend: Backend) -> np.ndarray:
    """Of a prompt of three tokens and two more."""
    with GGUFFile.open(path) as file:
        model = family_of(file)(file, backend)
        cache, sequence = KVCache(model.cache_shapes, 64, "float32", 1, backend), CachedSequence()
        steps = []
        for token_ids in ([65, 32, 66], [67], [260]):
            batch = Batch(np.array(token_ids, np.int32), cache.extend(sequence, len(token_ids)))
            values = model.lm_head(model.forward(batch.on(backend), cache))
            steps.append(np.array(backend.download(values)))
        return np.concatenate(steps)


@pytest.mark.parametrize(
    ("name", "cache_type"), [("qwen3moe", "float32"), ("deepseek2-v3", "f16"), ("gpt-oss", "bf16")]
)
def test_pages_that_lie_among_those_of_other_layers_give_the_same(
    accelerator: CudaAccelerator, name: str, cache_type: CacheType, tmp_path: Path
) -> None:
    """As they do beside experts."""
    path, backend = tmp_path / f"{name}.gguf", as_accelerator(accelerator)
    write_tiny(name, path)
    with GGUFFile.open(path) as file:
        model = family_of(file)(file, backend)
        plain = KVCache(model.cache_shapes, 128, cache_type, 1, backend)
        shared = SharedKVCache(model.cache_shapes, 128, cache_type, 1, backend)
        block = backend.cache_memory(64 + shared.num_bytes)
        shared.lie_in(block[64:].reshape(2, shared.page_bytes), 0)
        results = []
        for cache in (plain, shared):
            sequence = CachedSequence()
            for token_ids in ([65, 32, 66] * 22, [67]):
                batch = Batch(np.array(token_ids, np.int32), cache.extend(sequence, len(token_ids)))
                batch = replace(batch, context=cache.placed(batch.context))
                values = model.lm_head(model.forward(batch.on(backend), cache))
            results.append((np.array(backend.download(values)), cache.read_page(sequence.pages[0])))
        # not to the bit: how torch multiplies on a CPU depends on where its arrays happen to lie
        np.testing.assert_allclose(results[1][0], results[0][0], rtol=0, atol=1e-4)
        shared.write_page(sequence.pages[1], results[1][1])
        np.testing.assert_array_equal(shared.read_page(sequence.pages[1]), results[1][1])


@pytest.mark.parametrize("name", ["qwen3moe", "deepseek2-v3", "gpt-oss"])
def test_a_model_gives_on_the_device_what_it_gives_on_the_cpu(
    accelerator: CudaAccelerator, name: str, tmp_path: Path
) -> None:
    path = tmp_path / f"{name}.gguf"
    write_tiny(name, path)
    want = logits(path, CpuBackend(kernels.worker_pool(1)))
    got = logits(path, as_accelerator(accelerator))
    np.testing.assert_allclose(got, want, rtol=0, atol=2e-5)


def test_experts_on_the_device_and_on_the_cpu_give_what_the_cpu_gives(
    device: torch.device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Through the engine, step by step: prompts of few tokens, which are computed exactly."""
    path = tmp_path / "model.gguf"
    write_tiny("qwen3moe", path)

    def steps(**settings: Any) -> np.ndarray:
        config = EngineConfig(context=64, num_threads=1, compute="float32", program=False, **settings)
        with Engine.load(path, config) as engine:
            sequence = CachedSequence()
            rows = [engine.runner.prefill(sequence, [70, 71, 72])]
            rows += [engine.runner.decode([sequence], [token])[0].copy() for token in (5, 9)]
            return np.array(rows)

    want = steps()
    monkeypatch.setattr(
        accelerators, "open_accelerator", lambda kind, pool, memory: kind and CudaAccelerator(device, pool)
    )
    monkeypatch.setattr("ktdesk_engine.engine.open_accelerator", accelerators.open_accelerator)
    for num_experts in (20, None):  # in slots of their own, and in memory that the cache shares
        got = steps(accelerator="cuda", accelerator_experts=num_experts)
        np.testing.assert_allclose(got, want, rtol=0, atol=2e-5)


@pytest.mark.parametrize("cache_type", ["float32", "q8_0"])
def test_pages_go_to_host_memory_and_come_back(accelerator: CudaAccelerator, cache_type: CacheType) -> None:
    """As prefixes that are kept in memory and on disk do."""
    shapes = [LayerCacheShape(2, 64, 32), LayerCacheShape(1, 96, 64, values_in_keys=True)]
    own = KVCache(shapes, 3 * PAGE_SIZE, cache_type, 1, as_accelerator(accelerator))
    shared = SharedKVCache(shapes, 3 * PAGE_SIZE, cache_type, 1, as_accelerator(accelerator))
    memory = accelerator.cache_memory(3 * shared.page_bytes).reshape(3, shared.page_bytes)
    shared.lie_in(memory, 0)  # type: ignore[arg-type]  # a tensor
    for cache in (own, shared):
        pages = [cache.take_page() for _ in range(3)]
        contents = [np.random.default_rng(page).integers(0, 256, cache.page_bytes).astype(np.uint8) for page in pages]
        for page, content in zip(pages, contents, strict=True):
            cache.write_page(page, content)
        for page, content in zip(pages, contents, strict=True):
            np.testing.assert_array_equal(cache.read_page(page), content)
