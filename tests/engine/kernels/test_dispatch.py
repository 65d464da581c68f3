"""Which instruction set runs, and that a wish for one that the machine lacks is refused."""

from __future__ import annotations

import pytest

from ktdesk_engine import kernels
from ktdesk_engine.errors import ConfigError


def test_scalar_is_always_there_and_the_widest_comes_last() -> None:
    assert kernels.isas()[0] == "scalar"
    assert kernels.worker_pool(1).isa == kernels.isas()[-1]


@pytest.mark.parametrize("isa", kernels.isas())
def test_an_isa_can_be_forced_by_argument_block_and_environment(isa: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert kernels.worker_pool(1, isa).isa == isa
    with kernels.using(isa):
        assert kernels.worker_pool(1).isa == isa
        assert kernels.worker_pool(1, "scalar").isa == "scalar"
    monkeypatch.setenv("KTDESK_ISA", isa)
    assert kernels.worker_pool(1).isa == isa


def test_an_isa_that_the_machine_lacks_is_refused_with_those_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match=r"neon.*scalar"):
        kernels.worker_pool(1, "neon")
    monkeypatch.setenv("KTDESK_ISA", "avx1024")
    with pytest.raises(ConfigError, match=r"KTDESK_ISA.*avx1024"):
        kernels.worker_pool(1)


def test_pools_come_and_go_with_many_threads() -> None:
    for num_threads in (1, 2, 7):
        for _ in range(20):
            assert kernels.worker_pool(num_threads).num_threads == num_threads
