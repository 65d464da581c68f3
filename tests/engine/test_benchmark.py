"""Measurements: what a token touches, what a sample is compared with, and where it was made. No test asks how fast."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from benchmarks import use_small_probes
from gguf import GGMLQuantizationType, quantize
from model_variants import Tensors, write_variant

from ktdesk_engine import kernels
from ktdesk_engine.benchmark.ceilings import Ceilings, Probes, decide_buffer_bytes
from ktdesk_engine.benchmark.conditions import Load, LoadMeter, l3_bytes, read_machine
from ktdesk_engine.benchmark.model import ModelBench, ModelPlan
from ktdesk_engine.benchmark.model_weights import ModelWeights, model_weights
from ktdesk_engine.benchmark.samples import Row, Sample, Spread, Work, take_samples
from ktdesk_engine.config import EngineConfig, SamplingConfig
from ktdesk_engine.engine import Engine
from ktdesk_engine.errors import ConfigError, ResourceError
from ktdesk_engine.kernels import Weight
from ktdesk_engine.quants.formats import WeightType

MB = 1 << 20
GB = 1 << 30
ATTENTION = (128 + 64 + 64 + 128) * 128
"""Weights of a layer of tiny llama-moe: queries, keys, values, output."""
ROUTER = 8 * 128
EXPERT = 3 * 64 * 128
HEAD = 266 * 128
NORMS = 3 * 2 * 128 + 128


class FakeProbes(Probes):
    """Says what it is told to, one after the other."""

    def __init__(self, *reads: float) -> None:
        self.pool = kernels.worker_pool(1)
        self.reads = list(reads)

    def measure(self) -> Ceilings:
        return Ceilings(self.reads.pop(0), {"int8": 100.0})


def weights_of(path: Path, compute: str = "auto") -> ModelWeights:
    config = EngineConfig(compute="float32" if compute == "float32" else "auto", context=64)
    with Engine.load(path, config) as engine:
        return model_weights(engine.file, engine.model)


@pytest.fixture
def quantized_model(tmp_path: Path) -> Path:
    """Tiny llama-moe in Q8_0, which is packed in panels; norms and router stay as they are."""

    def to_q8_0(tensors: Tensors) -> None:
        for name, values in tensors.items():
            if values.ndim > 1 and "ffn_gate_inp" not in name:
                tensors[name] = quantize(values, GGMLQuantizationType.Q8_0)

    return write_variant("llama-moe", tmp_path / "q8_0.gguf", change=to_q8_0)


# What a token touches


def test_a_token_touches_all_dense_weights_the_head_its_experts_and_one_row(
    tiny_model: Callable[[str], Path],
) -> None:
    found = weights_of(tiny_model("llama-moe"))
    assert (found.num_experts, found.num_used) == (8, 2)
    dense = 4 * (3 * (ATTENTION + ROUTER) + NORMS)
    assert found.file_bytes == (dense, 4 * 3 * 8 * EXPERT, 4 * HEAD, 4 * 128)
    assert found.of_token(found.file_bytes) == dense + 4 * (3 * 2 * EXPERT + HEAD + 128)
    assert found.memory_bytes == found.file_bytes  # floats have no panels
    assert found.peak == "float32"


def test_operations_are_two_for_each_weight_that_is_multiplied(tiny_model: Callable[[str], Path]) -> None:
    found = weights_of(tiny_model("llama-moe"))
    layers = 3 * (ATTENTION + ROUTER + 2 * EXPERT)
    assert found.operations(num_tokens=10, num_logits=1) == 2 * (10 * layers + HEAD)


def test_a_tied_embedding_is_read_as_the_head_too(tiny_model: Callable[[str], Path]) -> None:
    found = weights_of(tiny_model("llama-tied"))
    assert found.file_bytes.head == 4 * HEAD
    assert found.file_bytes.embedding_row == 4 * 128
    assert (found.num_experts, found.file_bytes.experts) == (0, 0)
    assert found.of_token(found.file_bytes) == found.file_bytes.dense + 4 * HEAD + 4 * 128


def test_packed_weights_count_as_they_lie_in_memory(quantized_model: Path) -> None:
    found = weights_of(quantized_model)
    assert found.peak == "int8"
    assert found.file_bytes.head == HEAD // 32 * 34
    rows_in_panels = 272  # 266 rows fill 17 panels of 16
    assert found.memory_bytes.head == rows_in_panels * 128 // 32 * 34
    assert found.memory_bytes.experts == found.file_bytes.experts  # 64 and 128 rows fill their panels
    exact = weights_of(quantized_model, "float32")
    assert exact.memory_bytes == exact.file_bytes
    assert exact.peak == "float32"


# Samples


def test_a_spread_is_median_and_extremes() -> None:
    assert Spread.of([3.0, 1.0, 10.0]) == Spread(3.0, 1.0, 10.0)
    assert Spread.of([4.0, 2.0]).median == 3.0


def test_a_row_compares_each_sample_with_the_ceilings_around_it() -> None:
    work = Work(num_steps=2, num_tokens=10, operations=50, peak="int8")
    ceilings = Ceilings(200.0, {"int8": 100.0})  # the bytes take 2 s, the operations half a second
    row = Row("a", work, tuple(Sample(seconds, 400, ceilings) for seconds in (4.0, 5.0, 10.0)))
    assert row.step_seconds == Spread(2.5, 2.0, 5.0)
    assert row.tok_s == Spread(2.0, 1.0, 2.5)
    assert row.read_bytes_s.median == 80
    assert row.read_share == Spread(0.4, 0.2, 0.5)
    assert row.peak_share == Spread(0.1, 0.05, 0.125)
    assert row.times_floor == Spread(2.5, 2.0, 5.0)


def test_the_ceilings_are_looked_at_before_and_after_each_sample() -> None:
    calls, told = [], []

    def job() -> float:
        calls.append(len(probes.reads))
        kernels.linear(probes.pool, Weight(WeightType.F32, np.zeros((3, 32), np.uint8)), np.zeros((1, 8), np.float32))
        return float(len(calls))

    probes = FakeProbes(10.0, 20.0, 40.0)
    work = Work(1, 1, 1.0, "int8")
    row = take_samples("a", work, job, probes, 2, lambda *state: told.append(state))
    assert calls == [3, 2, 1]  # the first, which warms up, comes before all looks
    assert [sample.seconds for sample in row.samples] == [2.0, 3.0]
    assert [sample.weight_bytes for sample in row.samples] == [3 * 32, 3 * 32]
    assert [sample.ceilings.read_bytes_s for sample in row.samples] == [15.0, 30.0]
    assert told == [("a", 0, 2), ("a", 1, 2), ("a", 2, 2)]


# Ceilings


def test_the_buffer_is_larger_than_the_caches_and_a_part_of_the_memory() -> None:
    assert decide_buffer_bytes(0, 100 * GB) == 512 * MB
    assert decide_buffer_bytes(300 * MB, 100 * GB) == 1200 * MB
    assert decide_buffer_bytes(300 * MB, 2 * GB) == 512 * MB
    assert decide_buffer_bytes(300 * MB, 3 * MB) == 2 * MB


def test_probes_give_plausible_ceilings(monkeypatch: pytest.MonkeyPatch) -> None:
    use_small_probes(monkeypatch)
    found = Probes(kernels.worker_pool(2), ["int8", "float32"]).measure()
    for rate in (found.read_bytes_s, found.peak_ops_s["int8"], found.peak_ops_s["float32"]):
        assert math.isfinite(rate)
        assert rate > 0


# Conditions


def fake_cpus(folder: Path) -> Path:
    """Two pairs of cores, each pair with 8 MB of its own."""
    for cpu, shared in enumerate(("0-1", "0-1", "2-3", "2-3")):
        for index, level, size in ((0, "1", "32K"), (3, "3", "8192K")):
            cache = folder / f"cpu{cpu}" / "cache" / f"index{index}"
            cache.mkdir(parents=True)
            (cache / "level").write_text(f"{level}\n")
            (cache / "size").write_text(f"{size}\n")
            (cache / "shared_cpu_list").write_text(f"{shared}\n")
    return folder


def test_the_machine_is_read_from_what_the_system_tells(tmp_path: Path) -> None:
    (tmp_path / "cpuinfo").write_text("processor\t: 0\nmodel name\t: Abacus 9000\n\nmodel name\t: Other\n")
    machine = read_machine(tmp_path, fake_cpus(tmp_path / "cpu"))
    assert machine.cpu == "Abacus 9000"
    assert machine.l3_bytes == 16 * MB
    assert machine.memory_bytes > 0
    assert machine.num_cores >= 1


def test_a_system_that_tells_nothing_is_no_error(tmp_path: Path) -> None:
    assert read_machine(tmp_path, tmp_path).cpu == "unknown"
    assert l3_bytes(tmp_path) == 0


def test_a_machine_is_busy_by_what_others_use() -> None:
    assert not Load(other_cores=0.05, stolen_cores=0.0, load_average=4.0).is_busy
    assert Load(other_cores=0.5, stolen_cores=0.0, load_average=0.0).is_busy
    assert Load(other_cores=0.0, stolen_cores=0.2, load_average=0.0).is_busy
    assert LoadMeter().read().other_cores >= 0


# A model


def test_a_model_is_measured_at_each_length_and_depth(quantized_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_small_probes(monkeypatch)
    plan = ModelPlan(prompts=(5, 70), depths=(0, 65), answer=3, batches=(1, 4), repeat=2)
    assert plan.context == 65 + 70
    told: list[str] = []
    with Engine.load(quantized_model, EngineConfig(context=plan.context, num_threads=2)) as engine:
        bench = ModelBench(engine, plan)
        rows = list(bench.rows(Probes(engine.pool, ["int8"]), lambda name, *_: told.append(name)))
        shares = [bench.python_share(sampling) for sampling in (SamplingConfig(temperature=0), SamplingConfig())]
    jobs = ("prefill 5", "prefill 70", "decode 3", "decode 3 x 4")
    names = [f"{what} at {depth}" for depth in (0, 65) for what in jobs]
    assert [row.name for row in rows] == names
    assert "filling the cache to 65" in told
    assert [row.work.num_tokens for row in rows[:4]] == [5, 70, 3, 12]
    amount = bench.weights.memory_bytes
    vectors = 4 * NORMS  # are read too, but not counted
    assert rows[2].step_weight_bytes.median == bench.weights.of_token(amount) - vectors
    four = rows[3].step_weight_bytes.median - (amount.dense - vectors + amount.head + 4 * amount.embedding_row)
    assert amount.experts / 4 < four < amount.experts  # four tokens hit more than two of eight experts
    assert all(0 < share.minimum <= share.maximum < 1 for share in shares)
    assert all(len(row.samples) == 2 and row.tok_s.minimum > 0 for row in rows)


@pytest.mark.parametrize(
    "wrong",
    [
        {"prompts": (0,)},
        {"depths": (-1,)},
        {"answer": -1},
        {"repeat": 0},
        {"prompts": (), "answer": 0},
        {"batches": (4, 0)},
    ],
)
def test_a_plan_that_measures_nothing_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        ModelPlan(**wrong)  # type: ignore[arg-type]


def test_more_sequences_than_fit_are_refused(tiny_model: Callable[[str], Path]) -> None:
    plan = ModelPlan(prompts=(), answer=100, batches=(1_000_000_000,))
    with (
        Engine.load(tiny_model("llama-dense"), EngineConfig(context=plan.context)) as engine,
        pytest.raises(ResourceError, match="1000000000 sequences of 101 tokens"),
    ):
        ModelBench(engine, plan)
