"""The accelerator that is a host thread: order, memory, delays, failures, and the hand-off in a recorded step."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

import numpy as np
import pytest
from random_experts import E, H, K, floats, random_mlp, random_routes

from ktdesk_engine import kernels
from ktdesk_engine.backends.accelerator import Accelerator, HostExperts
from ktdesk_engine.backends.cpu import CpuBackend
from ktdesk_engine.backends.host_thread import Delays, HostThreadAccelerator
from ktdesk_engine.errors import AcceleratorError, AcceleratorMemoryError
from ktdesk_engine.kernels import ExpertMlp
from ktdesk_engine.kernels.handoff import CpuPart, HandOff, HandOffError, cpu_share
from ktdesk_engine.kernels.routing import NO_EXPERT, Routes


@pytest.fixture
def cpu() -> CpuBackend:
    return CpuBackend(kernels.worker_pool(1))


@pytest.fixture
def accelerator(cpu: CpuBackend) -> Iterator[HostThreadAccelerator]:
    made = HostThreadAccelerator(cpu.pool)
    yield made
    made.close()


def test_it_is_an_accelerator(accelerator: HostThreadAccelerator) -> None:
    as_interface: Accelerator = accelerator
    assert as_interface.name


def test_operations_give_what_the_cpu_gives(accelerator: HostThreadAccelerator, cpu: CpuBackend) -> None:
    x, mlp, routes = floats(5, H), random_mlp(1), random_routes(5)
    got = accelerator.download(accelerator.add(accelerator.experts(mlp, x, *routes), x))
    accelerator.synchronize()
    np.testing.assert_array_equal(got, cpu.add(cpu.experts(mlp, x, *routes), x))


def test_memory_that_python_lets_go_of_is_not_overwritten_too_early(accelerator: HostThreadAccelerator) -> None:
    accelerator.stream.delay_ns = 200_000
    x = ones = np.ones((3, H), np.float32)
    for _ in range(20):
        x = accelerator.add(x, ones)
    accelerator.synchronize()
    np.testing.assert_array_equal(x, 21 * ones)


def test_an_upload_is_what_was_there_when_it_was_called(accelerator: HostThreadAccelerator) -> None:
    accelerator.stream.delay_ns = 1_000_000
    ids = np.array([1, 2, 3], np.int32)
    uploaded = accelerator.upload(ids)
    ids[:] = 0
    accelerator.synchronize()
    np.testing.assert_array_equal(uploaded, [1, 2, 3])


def test_a_call_returns_before_a_slow_operation_is_done(cpu: CpuBackend) -> None:
    slow = HostThreadAccelerator(cpu.pool, delays=Delays(each=0.05))
    x, zeros = floats(1, H), np.zeros((1, H), np.float32)
    started = time.perf_counter()
    slow.add(x, zeros)
    submitted = time.perf_counter()
    slow.synchronize()
    assert time.perf_counter() - started >= 0.05
    assert submitted - started < time.perf_counter() - started


def test_one_that_is_let_go_does_what_it_was_told_before(cpu: CpuBackend) -> None:
    hasty = HostThreadAccelerator(cpu.pool, delays=Delays(each=0.001))
    x = ones = np.ones((1, H), np.float32)
    for _ in range(30):
        x = hasty.add(x, ones)
    del hasty
    np.testing.assert_array_equal(x, 31 * ones)


def threads() -> set[str]:
    return set(os.listdir("/proc/self/task"))


def test_closing_ends_its_threads_and_may_be_done_again(cpu: CpuBackend) -> None:
    before = threads()
    accelerator = HostThreadAccelerator(cpu.pool, delays=Delays(each=0.001))
    x = ones = np.ones((1, H), np.float32)
    for _ in range(30):
        x = accelerator.add(x, ones)
    stage = accelerator.expert_stage([HostExperts(random_mlp(1), random_mlp(1))] * 2)
    stage.load(0)
    free_bytes = accelerator.free_bytes
    own = threads() - before
    assert len(own) == 2
    for _ in range(2):
        accelerator.close()
        stage.close()
    assert not own & threads()
    assert accelerator.free_bytes > free_bytes
    np.testing.assert_array_equal(x, 31 * ones)
    np.testing.assert_array_equal(accelerator.add(x, ones), 32 * ones)


def test_closing_breaks_off_what_waits_for_the_cpu_and_tells_no_failure(cpu: CpuBackend) -> None:
    before = threads()
    accelerator = HostThreadAccelerator(cpu.pool)
    hand_off = HandOff(2, 3, H, K)
    accelerator.pin(hand_off)
    accelerator.take_back(hand_off, 0, floats(3, H))  # nobody computes it
    accelerator.lose()
    own = threads() - before
    accelerator.close()
    assert own
    assert not own & threads()


def test_a_failed_operation_is_found_once_and_skips_those_behind_it(accelerator: HostThreadAccelerator) -> None:
    untouched = np.ones((1, H), np.float32)
    accelerator.fail("the device is lost")
    accelerator.rms_norm_in_place(untouched, np.full(H, 7, np.float32), 1e-6)
    with pytest.raises(AcceleratorError, match=r"the device is lost"):
        accelerator.synchronize()
    np.testing.assert_array_equal(untouched, 1)
    accelerator.synchronize()


def test_memory_beyond_its_account_is_refused(cpu: CpuBackend) -> None:
    small = HostThreadAccelerator(cpu.pool, memory_bytes=100_000)
    layers = [HostExperts(random_mlp(1), random_mlp(1))]
    slots = small.expert_slots(layers, 2)
    assert small.free_bytes == 100_000 - 2 * slots.slot_bytes
    with pytest.raises(AcceleratorMemoryError, match=r"4 experts take 73,728 bytes"):
        small.expert_slots(layers, 4)
    with pytest.raises(MemoryError):
        small.add(floats(10_000, H), floats(10_000, H))


def test_memory_is_given_back_also_where_others_took_more_than_there_is(cpu: CpuBackend) -> None:
    accelerator = HostThreadAccelerator(cpu.pool, memory_bytes=1000)
    accelerator.hold(600, "experts")
    accelerator.shrink(100)
    accelerator.hold(-200, "experts")
    assert accelerator.free_bytes == -300


def test_slots_hold_experts_of_any_layer(accelerator: HostThreadAccelerator, cpu: CpuBackend) -> None:
    layers = [random_mlp(1, biased=True), random_mlp(20, biased=True)]
    slots = accelerator.expert_slots([HostExperts(layer, layer) for layer in layers], 3)
    table = np.full((2, E), -1, np.int32)
    for slot, (layer, expert) in enumerate([(0, 5), (1, 2), (1, 0)]):
        slots.put(slot, layer, expert)
        table[layer, expert] = slot
    slots.set_table(table)
    x, routes = floats(4, H), random_routes(4)
    for layer, resident in ((0, [5]), (1, [0, 2])):
        got = slots.experts(layer, x, routes)
        accelerator.synchronize()
        kept = np.where(np.isin(routes.ids, resident), routes.ids, NO_EXPERT).astype(np.int32)
        np.testing.assert_array_equal(got, cpu.experts(layers[layer], x, kept, routes.weights))


def cpu_part(mlp: ExpertMlp, resident: list[int], num_tokens: int) -> CpuPart:
    slots = np.full(E, -1, np.int32)
    slots[resident] = range(len(resident))
    pending, has_pending = np.zeros((num_tokens, H), np.float32), np.zeros(1, np.int32)
    return CpuPart(mlp, slots, np.zeros(E, np.int64), None, pending, has_pending)


@pytest.mark.parametrize("num_tokens", [1, 3])
def test_a_recorded_step_hands_over_and_takes_back(
    num_tokens: int, accelerator: HostThreadAccelerator, cpu: CpuBackend
) -> None:
    """Three layers, each adds its experts to its input."""
    layers = [random_mlp(10 * k) for k in range(3)]
    hand_off = HandOff(3, num_tokens, H, K)
    device, host = accelerator.program(), cpu.program()
    start = device.ids(num_tokens, H).view(np.float32)
    ids = device.ids(num_tokens, K)
    weights = device.ids(num_tokens, K).view(np.float32)
    parts = [cpu_part(mlp, [1, 4], num_tokens) for mlp in layers]

    def set_inputs(seed: int) -> np.ndarray:
        start[:] = floats(num_tokens, H, seed=seed)
        ids[:], weights[:] = random_routes(num_tokens, seed)
        x = start.copy()
        for mlp in layers:
            on_cpu = np.where(np.isin(ids, [1, 4]), NO_EXPERT, ids).astype(np.int32)
            x = cpu.add(x, cpu.experts(mlp, x, on_cpu, weights))
        return x

    want = set_inputs(0)
    with device.recording(), host.recording():
        x = start
        for k, part in enumerate(parts):
            accelerator.hand_over(hand_off, k, x, Routes(ids, weights))
            cpu_share(cpu.pool, hand_off, k, num_tokens, part)
            x = accelerator.add(x, accelerator.take_back(hand_off, k, x))
    accelerator.synchronize()
    np.testing.assert_array_equal(x, want)
    for seed in range(1, 4):
        want = set_inputs(seed)
        device.replay()
        host.replay()
        accelerator.synchronize()
        np.testing.assert_array_equal(x, want)
    assert sum(part.counts.sum() for part in parts) == 4 * 3 * num_tokens * K


def test_the_cpu_does_not_wait_for_ever(cpu: CpuBackend) -> None:
    hand_off = HandOff(1, 1, H, K)
    hand_off.native.timeout_ns = 10_000_000
    with pytest.raises(HandOffError, match="the accelerator did not answer in time"):
        cpu_share(cpu.pool, hand_off, 0, 1, cpu_part(random_mlp(0), [], 1))


def test_who_waits_is_let_go_where_the_other_side_failed(accelerator: HostThreadAccelerator) -> None:
    hand_off = HandOff(1, 1, H, K)
    accelerator.take_back(hand_off, 0, floats(1, H))
    hand_off.fail()
    with pytest.raises(AcceleratorError, match="the other side of the hand-off failed"):
        accelerator.synchronize()
    hand_off.reset()
    assert not hand_off.memory[:128].any()


def test_flags_and_areas_do_not_share_a_cache_line() -> None:
    hand_off = HandOff(3, 2, H, K)
    starts = [address for layer in range(3) for address in hand_off.addresses(layer)]
    starts += [part(layer, 2).ctypes.data for layer in range(2) for part in (hand_off.x, hand_off.ids, hand_off.out)]
    assert len({start // 64 for start in starts}) == len(starts)
    assert hand_off.memory.ctypes.data % 4096 == 0
