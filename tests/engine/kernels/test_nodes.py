"""Pools whose threads belong to several NUMA nodes: each begins at home, helps elsewhere, and no bit changes."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain

import numpy as np
import pytest

from ktdesk_engine import kernels
from ktdesk_engine.benchmark.random_weights import random_weight
from ktdesk_engine.kernels import Activation, ExpertMlp, ExpertWeight, Floats, ThreadPlace, WorkerPool, _kernels
from ktdesk_engine.kernels.pools import NEVER
from ktdesk_engine.quants.formats import WeightType

Operation = Callable[[WorkerPool], Floats]

SLICED_AT_HOME = 3  # as trace_threads counts the kinds of runs
GROUPS = [(0, 1), (0, 1, 1), (0, 0, 0, 1), (0, 1, 2), (0, 1, 2, 3, 3)]
WAYS = [(isa, NEVER) for isa in kernels.isas()] + ([("amx", 1)] if "amx" in kernels.isas() else [])


def pool_of(groups: tuple[int, ...], isa: str, min_tile_rows: int) -> WorkerPool:
    pool = kernels.worker_pool(len(groups), isa, [ThreadPlace(group, ()) for group in groups])
    pool.min_tile_rows = min_tile_rows
    return pool


def random_floats(*shape: int) -> Floats:
    return np.random.default_rng(7).standard_normal(shape).astype(np.float32)


def product(rows: int, tokens: int) -> Operation:
    weight, x = random_weight(WeightType.Q4_K, rows, 256), random_floats(tokens, 256)
    return lambda pool: kernels.linear(pool, kernels.pack(pool, weight), x, np.arange(rows, dtype=np.float32))


def product_per_head(heads: int, rows: int, tokens: int) -> Operation:
    weight, x = random_weight(WeightType.Q8_0, heads, rows, 64), random_floats(tokens, heads, 64)
    return lambda pool: kernels.linear_per_head(pool, kernels.pack(pool, weight), x)


def network(E: int, K: int, I: int, tokens: int) -> Operation:
    shapes = ((E, I, 256), (E, I, 256), (E, 256, I))
    weights = [random_weight(WeightType.Q4_0, *shape, seed=seed) for seed, shape in enumerate(shapes)]
    rng = np.random.default_rng(3)
    ids = np.argsort(rng.random((tokens, E)), axis=1)[:, :K].astype(np.int32)
    x, routed = random_floats(tokens, 256), rng.random((tokens, K)).astype(np.float32)

    def run(pool: WorkerPool) -> Floats:
        gate, up, down = (ExpertWeight(kernels.pack(pool, weight)) for weight in weights)
        return kernels.expert_mlp(pool, ExpertMlp(gate, up, down, Activation.SWIGLU), x, ids, routed)

    return run


OPERATIONS = {
    "product": product(1000, 9),
    "product of less rows than nodes": product(17, 2),
    "product per head": product_per_head(3, 150, 5),
    "experts": network(20, 4, 96, 33),
    "an expert narrower than nodes": network(2, 1, 32, 3),
    "a token": network(8, 4, 160, 1),
}


@pytest.mark.parametrize(("isa", "min_tile_rows"), WAYS)
@pytest.mark.parametrize("name", OPERATIONS)
def test_nodes_do_not_change_a_bit(name: str, isa: str, min_tile_rows: int) -> None:
    operation = OPERATIONS[name]
    want = operation(pool_of((0,), isa, min_tile_rows))
    for groups in GROUPS:
        np.testing.assert_array_equal(operation(pool_of(groups, isa, min_tile_rows)), want, err_msg=str(groups))


@dataclass(frozen=True)
class Taken:
    """A chunk that a thread took."""

    own_node: int
    node: int
    group: int
    first: int
    count: int


def traced(operation: Operation, groups: tuple[int, ...]) -> list[list[Taken]]:
    """By thread, in order."""
    pool = pool_of(groups, "scalar", NEVER)
    _kernels.trace_chunks(pool, True)
    operation(pool)
    return [[Taken(*chunk) for chunk in chunks] for chunks in _kernels.trace_chunks(pool, False)]


def order(chunks: list[Taken]) -> str:
    return "".join("h" if chunk.node == chunk.own_node else "a" for chunk in chunks)


PHASES = {"product": 1, "product per head": 1, "experts": 2}


@pytest.mark.parametrize("name", PHASES)
@pytest.mark.parametrize("groups", GROUPS)
def test_a_thread_begins_at_home_and_goes_elsewhere_when_nothing_is_left_there(
    name: str, groups: tuple[int, ...]
) -> None:
    for _ in range(5):
        orders = [order(chunks) for chunks in traced(OPERATIONS[name], groups)]
        assert any(orders)
        assert all(re.fullmatch("h*a*" * PHASES[name], one) for one in orders), orders
        if groups == (0, 1):  # who took a late one's share has ended its own: nothing is left elsewhere
            assert not any(one.startswith("a") for one in orders), orders


@pytest.mark.parametrize("groups", GROUPS)
def test_a_node_computes_what_it_packed(groups: tuple[int, ...]) -> None:
    """The shares are those of run_sliced_at_home, by which panels are packed."""
    num_panels = 1000 // kernels.PANEL_ROWS + 1
    packed_by = np.full((1, num_panels), -1, np.int32)
    _kernels.trace_threads(pool_of(groups, "scalar", NEVER), SLICED_AT_HOME, 0, packed_by)
    nodes = np.full(num_panels, -1)
    for chunk in chain(*traced(OPERATIONS["product"], groups)):
        nodes[chunk.first : chunk.first + chunk.count] = chunk.node
    assert [groups[thread] for thread in packed_by[0]] == nodes.tolist()


def test_of_one_node_everything_is_at_home() -> None:
    orders = [order(chunks) for chunks in traced(OPERATIONS["experts"], (0, 0, 0))]
    assert set("".join(orders)) == {"h"}
