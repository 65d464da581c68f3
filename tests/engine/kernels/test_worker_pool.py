"""Who does what in a pool: every task once, shares by group, and nothing shared between pools."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from ktdesk_engine import kernels
from ktdesk_engine.kernels import Ids, ThreadPlace, WorkerPool, _kernels

RUN, SLICED, AT_HOME, SLICED_AT_HOME, COUNTED = range(5)
GROUPS = [(0,), (0, 0), (0, 1), (0, 1, 1), (0, 0, 0, 1), (0, 1, 2, 3, 3)]


def pool_of(groups: tuple[int, ...], isa: str = "scalar") -> WorkerPool:
    return kernels.worker_pool(len(groups), isa, [ThreadPlace(group, ()) for group in groups])


def trace(pool: WorkerPool, kind: int, num_blocks: int, num_slices: int, task_ns: int = 0) -> Ids:
    threads = np.full((num_blocks, num_slices), -99, np.int32)
    _kernels.trace_threads(pool, kind, task_ns, threads)
    return threads


@pytest.mark.parametrize("groups", GROUPS)
@pytest.mark.parametrize("num_slices", [0, 1, 2, 3, 17, 64])
def test_every_task_is_done_once_by_a_thread_of_the_pool(groups: tuple[int, ...], num_slices: int) -> None:
    pool = pool_of(groups)
    runs = [(RUN, 1), (AT_HOME, 1)]
    runs += [(kind, blocks) for kind in (SLICED, SLICED_AT_HOME, COUNTED) for blocks in (0, 1, 5)]
    for kind, num_blocks in runs:
        for _ in range(10):
            threads = trace(pool, kind, num_blocks, num_slices)
            assert ((threads >= 0) & (threads < len(groups))).all(), (kind, num_blocks)


def test_thousands_of_jobs_in_a_row_lose_no_task() -> None:
    pool = pool_of((0, 0, 1))
    for job in range(3000):
        threads = trace(pool, job % 5, 1, job % 7)
        assert ((threads >= 0) & (threads < 3)).all()


@pytest.mark.parametrize("groups", [(0, 1), (0, 1, 1), (0, 0, 0, 1), (0, 1, 2, 3, 3)])
def test_work_at_home_is_done_by_the_groups_own_threads(groups: tuple[int, ...]) -> None:
    pool = pool_of(groups)
    num_tasks = 4 * len(groups)
    group_of_task = [groups[task * len(groups) // num_tasks] for task in range(num_tasks)]
    for kind, num_blocks in ((AT_HOME, 1), (SLICED_AT_HOME, 3)) * 10:
        for threads in trace(pool, kind, num_blocks, num_tasks, task_ns=1000):
            assert [groups[thread] for thread in threads] == group_of_task


def test_a_group_helps_another_that_is_slow() -> None:
    """The caller alone is group 0, and three quarters of the tasks are of group 1: only help lets it do more."""
    pool = pool_of((0, 1, 1, 1))
    most = max(int((trace(pool, RUN, 1, 64, task_ns=200_000) == 0).sum()) for _ in range(5))
    assert most > 16


def test_a_pool_counts_its_groups() -> None:
    assert [pool_of(groups).num_groups for groups in GROUPS] == [1, 1, 2, 2, 2, 4]
    assert kernels.worker_pool(3).num_groups == 1


@pytest.mark.parametrize(
    ("places", "message"),
    [
        ([(1, ())], "ascend from 0"),
        ([(0, ()), (2, ())], "leave none out"),
        ([(0, ()), (1, ()), (0, ())], "ascend"),
        ([(0, (-1,))], "0 to 65535"),
    ],
)
def test_places_that_make_no_sense_are_refused(places: list[tuple[int, tuple[int, ...]]], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        _kernels.WorkerPool(len(places), "scalar", places)


def test_every_thread_needs_a_place() -> None:
    with pytest.raises(ValueError, match="one place a thread"):
        _kernels.WorkerPool(3, "scalar", [(0, ())])


def thread_ids() -> set[int]:
    return {int(task.name) for task in Path("/proc/self/task").iterdir()}


def test_workers_run_where_their_place_says_and_the_caller_where_it_likes() -> None:
    allowed = os.sched_getaffinity(0)
    cpu = min(allowed)
    before = thread_ids()
    pool = kernels.worker_pool(3, "scalar", [ThreadPlace(0, (cpu,))] * 3)
    trace(pool, RUN, 1, 64, task_ns=100_000)
    deadline = time.monotonic() + 20
    workers = thread_ids() - before
    while any(os.sched_getaffinity(worker) != {cpu} for worker in workers) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert len(workers) == 2
    assert all(os.sched_getaffinity(worker) == {cpu} for worker in workers)
    assert os.sched_getaffinity(0) == allowed


def test_a_cpu_that_the_machine_lacks_leaves_the_thread_unpinned() -> None:
    pool = kernels.worker_pool(2, "scalar", [ThreadPlace(0, (1023,)), ThreadPlace(0, (1023,))])
    assert (trace(pool, RUN, 1, 16) >= 0).all()


def test_idle_threads_sleep() -> None:
    """They spin for less than a millisecond, so a second of idleness costs next to nothing."""
    pool = kernels.worker_pool(2)
    trace(pool, RUN, 1, 16)
    time.sleep(0.05)
    start = time.process_time()
    time.sleep(0.5)
    assert time.process_time() - start < 0.25


def test_pools_work_side_by_side_from_threads_of_their_own() -> None:
    def work(pool: WorkerPool, results: list[bool]) -> None:
        results.extend(bool((trace(pool, SLICED, 3, 11) >= 0).all()) for _ in range(300))

    results: list[bool] = []
    pools = [pool_of((0, 0)), pool_of((0, 1)), pool_of((0, 0, 0))]
    callers = [threading.Thread(target=work, args=(pool, results)) for pool in pools]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert results == [True] * 900


def test_callers_of_one_pool_wait_for_each_other() -> None:
    pool = pool_of((0, 1))
    results: list[bool] = []

    def work() -> None:
        results.extend(bool((trace(pool, RUN, 1, 9) >= 0).all()) for _ in range(200))

    callers = [threading.Thread(target=work) for _ in range(3)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert results == [True] * 600


def test_empty_runs_can_be_timed() -> None:
    assert _kernels.time_empty_runs(kernels.worker_pool(2), 100, 2) > 0
