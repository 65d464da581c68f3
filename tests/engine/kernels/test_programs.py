"""Operations that are recorded and replayed."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import numpy as np
import pytest

from ktdesk_engine import kernels
from ktdesk_engine.kernels import Floats, Ids, Weight, WorkerPool
from ktdesk_engine.kernels.programs import Program
from ktdesk_engine.quants.formats import WeightType

TABLE = np.random.default_rng(0).standard_normal((8, 32)).astype(np.float32)
TABLE_WEIGHT = Weight(WeightType.F32, TABLE.view(np.uint8))
SQUARE = Weight(WeightType.F32, np.random.default_rng(1).standard_normal((32, 32)).astype(np.float32).view(np.uint8))
NORM = np.ones(32, np.float32)


@pytest.fixture(params=kernels.isas())
def pool(request: pytest.FixtureRequest) -> Iterator[WorkerPool]:
    return kernels.worker_pool(2, request.param)


def layers(pool: WorkerPool, ids: Ids) -> Floats:
    """Some operations, most of whose results are let go of on the way."""
    x = kernels.get_rows(pool, TABLE_WEIGHT, ids)
    for _ in range(6):
        x = kernels.add(pool, x, kernels.linear(pool, SQUARE, kernels.rms_norm(pool, x, NORM, 1e-6)))
    return x


def test_a_replay_computes_with_what_its_ids_are_then(pool: WorkerPool) -> None:
    program = Program(pool)
    ids = program.ids(3)
    assert ids.tolist() == [0, 0, 0]
    with program.recording():
        result = layers(pool, ids)
    np.testing.assert_array_equal(result, layers(pool, np.zeros(3, np.int32)))
    for wanted in ([1, 2, 3], [7, 0, 7]):
        ids[:] = wanted
        program.replay()
        np.testing.assert_array_equal(result, layers(pool, np.array(wanted, np.int32)))
    assert program.num_steps == 1 + 6 * 3


def test_memory_that_is_let_go_of_is_used_again(pool: WorkerPool) -> None:
    program = Program(pool)
    ids = program.ids(1)
    with program.recording():
        result = layers(pool, ids)
    assert result.shape == (1, 32)
    assert program.num_bytes <= ids.nbytes + 4 * TABLE[0].nbytes  # of 19 results


def test_what_numpy_made_is_refused_while_a_program_records(pool: WorkerPool) -> None:
    program = Program(pool)
    ids = program.ids(2)
    with program.recording():
        x = kernels.get_rows(pool, TABLE_WEIGHT, ids)
        kernels.rms_norm(pool, x.reshape(1, 2, 32)[0, :1], NORM, 1e-6)  # a view is no new array
        for made in (x + x, x.copy(), np.ascontiguousarray(x.T).T.copy()):
            with pytest.raises(RuntimeError, match="from outside the program"):
                kernels.linear(pool, SQUARE, made)
        with pytest.raises(RuntimeError, match="from outside the program"):
            kernels.get_rows(pool, TABLE_WEIGHT, np.zeros(2, np.int32))
    assert program.num_steps == 2


def test_a_bad_id_is_the_same_error_in_a_replay_and_the_next_replay_is_right(pool: WorkerPool) -> None:
    program = Program(pool)
    ids = program.ids(2)
    with program.recording():
        result = layers(pool, ids)
    ids[:] = [1, 8]
    with pytest.raises(ValueError, match="get_rows: an id is outside the matrix"):
        program.replay()
    ids[:] = [1, 7]
    program.replay()
    np.testing.assert_array_equal(result, layers(pool, np.array([1, 7], np.int32)))


def test_a_program_records_once_and_one_at_a_time_on_a_pool(pool: WorkerPool) -> None:
    first, second = Program(pool), Program(pool)
    with first.recording():
        kernels.get_rows(pool, TABLE_WEIGHT, first.ids(1))
        with pytest.raises(RuntimeError, match="is being recorded"), second.recording():
            pass
    with pytest.raises(RuntimeError, match="recorded once"), first.recording():
        pass
    with second.recording():
        kernels.get_rows(pool, TABLE_WEIGHT, second.ids(1))
    assert second.num_steps == 1


def test_another_thread_is_not_recorded(pool: WorkerPool) -> None:
    program, rows = Program(pool), []
    with program.recording():
        ids = np.array([3], np.int32)
        thread = threading.Thread(target=lambda: rows.append(kernels.get_rows(pool, TABLE_WEIGHT, ids)))
        thread.start()
        thread.join()
    np.testing.assert_array_equal(rows[0], TABLE[[3]])
    assert program.num_steps == 0


def test_results_outlive_their_program(pool: WorkerPool) -> None:
    program = Program(pool)
    ids = program.ids(1)
    with program.recording():
        result = kernels.get_rows(pool, TABLE_WEIGHT, ids)
    del program, ids
    np.testing.assert_array_equal(result, TABLE[:1])


def test_weights_stay_alive_with_the_program(pool: WorkerPool) -> None:
    program = Program(pool)
    ids, table = program.ids(1), TABLE.copy()
    with program.recording():
        result = kernels.get_rows(pool, Weight(WeightType.F32, table.view(np.uint8)), ids)
    del table
    others = [np.full_like(TABLE, np.nan) for _ in range(100)]
    program.replay()
    np.testing.assert_array_equal(result, TABLE[:1])
    assert len(others) == 100


def test_a_failed_recording_leaves_the_pool_free(pool: WorkerPool) -> None:
    with pytest.raises(ZeroDivisionError), Program(pool).recording():
        raise ZeroDivisionError
    program = Program(pool)
    with program.recording():
        kernels.get_rows(pool, TABLE_WEIGHT, program.ids(1))
    assert program.num_steps == 1
