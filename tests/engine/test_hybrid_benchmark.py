"""The benchmark of the hybrid step, on a small layer: what it reports, not how fast it is."""

from __future__ import annotations

from ktdesk_engine import kernels
from ktdesk_engine.benchmark.hybrid import NUM_LAYERS, HybridBench, HybridTimes, as_text
from ktdesk_engine.benchmark.layer import LayerShape
from ktdesk_engine.quants.formats import WeightType


def test_it_times_both_sides_and_each_number_of_deferred_experts() -> None:
    bench = HybridBench(kernels.worker_pool(1), WeightType.Q8_0, LayerShape(64, 32, 8, 4))
    times = bench.measure(1)
    assert times.num_layers == NUM_LAYERS
    assert len(times.steps) == 3
    assert min(times.cpu, times.accelerator, *times.steps) > 0


def test_ratios_are_what_is_wanted_to_be_small() -> None:
    times = HybridTimes(2, 4, cpu=2.0, accelerator=1.0, steps=(3.3, 2.5, 2.2), hand_off=4e-6)
    assert times.over_sum == 3.3 / 3
    assert times.over_longer == 2.2 / 2
    assert "step with 2 deferred: 2200.00 ms, 0.73 x their sum, 1.10 x the longer" in as_text(times)
    assert "hand-off: 4.0 us a layer" in as_text(times)
