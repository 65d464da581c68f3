"""Which instruction set runs, and that a wish for one that the machine lacks is refused."""

from __future__ import annotations

import os
import subprocess
import sys

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
    monkeypatch.setenv("KTDESK_ISA", isa.upper())
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


def run_alone(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)


@pytest.mark.skipif(
    "san.so" in os.environ.get("LD_PRELOAD", ""), reason="a sanitizer needs more addresses than the limit set here"
)
def test_too_many_threads_for_the_process_are_an_error_in_words() -> None:
    result = run_alone(
        "import resource\n"
        "from ktdesk_engine import kernels\n"
        "from ktdesk_engine.errors import ResourceError\n"
        "resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))\n"
        "try: kernels.worker_pool(1000)\n"
        "except ResourceError as error: print(error)\n"
    )
    assert result.returncode == 0, result.stderr
    assert "1000 threads could not be started" in result.stdout


def test_a_forked_child_computes_alone_and_leaves_quietly() -> None:
    result = run_alone(
        "import os, sys, numpy as np\n"
        "from ktdesk_engine import kernels\n"
        "from ktdesk_engine.kernels import Weight\n"
        "from ktdesk_engine.quants.formats import WeightType\n"
        "pool = kernels.worker_pool(3)\n"
        "weight = Weight(WeightType.F32, np.ones((64, 8), np.float32).view(np.uint8))\n"
        "x = np.ones((2, 8), np.float32)\n"
        "before = kernels.linear(pool, weight, x)\n"
        "child = os.fork()\n"
        "after = kernels.linear(pool, weight, x)\n"
        "assert (before == after).all()\n"
        "if child: sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))\n"
        "del pool\n"
    )
    assert result.returncode == 0, result.stderr
