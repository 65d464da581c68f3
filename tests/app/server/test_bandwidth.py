"""/metrics tells how near decoding comes to what the memory gives, if that was measured, and nothing otherwise."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from model_variants import in_types, write_variant

from ktdesk.server.opening import OpenSettings, open_model
from ktdesk_engine import kernels
from ktdesk_engine.config import EngineConfig, Request, SamplingConfig
from ktdesk_engine.engine import Engine
from ktdesk_engine.machine import thread_places
from ktdesk_engine.quants.formats import WeightType
from ktdesk_wizard.probe.measurement import Measurement, machine_key, save_measurement
from ktdesk_wizard.probe.probe import probe

NUM_THREADS = len(thread_places())
HOW = OpenSettings(EngineConfig(compute="float32", num_threads=NUM_THREADS, context=512))
CEILING = 2e9
VECTOR_PEAK, TILE_PEAK = 1e12, 8e12
WIDEST_VECTORS = [isa for isa in kernels.isas() if isa != "amx"][-1]


@pytest.fixture
def measured_folder(tmp_path: Path) -> Path:
    measurement = Measurement(machine_key(probe(tmp_path)), "2026-01-01 00:00", CEILING, VECTOR_PEAK, TILE_PEAK)
    save_measurement(measurement, tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def quantized_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("quantized") / "model.gguf"
    return write_variant("llama-moe", path, change=in_types(lambda position: WeightType.Q8_0))


def numbers_after_an_answer(path: Path, how: OpenSettings) -> dict[str, float]:
    opened = open_model(path, how, lambda progress: None, print)
    try:
        request = Request((1, 2, 3), SamplingConfig(temperature=0), max_tokens=8, ignore_eos=True)
        done: list[object] = []
        opened.answers.submit(request, deliver=done.append)
        while len(done) < 8:  # events, the last with the reason
            time.sleep(0.01)
        return opened.answers.numbers()
    finally:
        opened.answers.close()


def test_the_share_is_what_is_read_by_what_was_measured(measured_folder: Path, talker: Path) -> None:
    numbers = numbers_after_an_answer(talker, replace(HOW, data_folder=measured_folder))
    share = numbers["decode_weight_bytes_per_second"] / CEILING
    assert numbers["decode_bandwidth_share"] == pytest.approx(share)
    assert share > 0


@pytest.mark.parametrize("isa", kernels.isas())
def test_prompts_are_held_against_the_peak_of_what_computes_them(
    isa: str, measured_folder: Path, quantized_model: Path
) -> None:
    config = replace(HOW.config, compute="auto", isa=isa)
    numbers = numbers_after_an_answer(quantized_model, replace(HOW, config=config, data_folder=measured_folder))
    done = numbers["prefill_operations_per_second"]
    assert done > 0
    assert numbers["prefill_on_tiles"] == (isa == "amx")
    if isa == "amx":
        assert numbers["prefill_peak_share"] == pytest.approx(done / TILE_PEAK)
    elif isa == WIDEST_VECTORS:
        assert numbers["prefill_peak_share"] == pytest.approx(done / VECTOR_PEAK)
    else:
        assert "prefill_peak_share" not in numbers


def test_what_was_not_measured_here_or_with_other_threads_is_left_out(
    measured_folder: Path, talker: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    others = [
        replace(HOW, data_folder=tmp_path_factory.mktemp("empty")),
        replace(HOW, data_folder=measured_folder, config=replace(HOW.config, num_threads=NUM_THREADS + 1)),
        HOW,
    ]
    for how in others:
        numbers = numbers_after_an_answer(talker, how)
        assert "decode_bandwidth_share" not in numbers
        assert numbers["decode_weight_bytes_per_second"] > 0


def test_a_step_reads_what_a_token_uses_and_in_company_it_is_known_of_dense_models_alone(
    tiny_model: Callable[[str], Path],
) -> None:
    """In float32, from the file: two layers of 128 wide attention and feed-forward, the head, and a row a token."""
    with Engine.load(tiny_model("llama-dense"), EngineConfig(compute="float32", num_threads=1)) as engine:
        layer = 128 * (128 + 64 + 64) + 128 * 128 + 3 * 128 * 192 + 2 * 128
        one = 4 * (2 * layer + 128 + 266 * 128 + 128)
        assert engine.step_weight_bytes(1) == one
        assert engine.step_weight_bytes(3) == one + 2 * 4 * 128
    with Engine.load(tiny_model("llama-moe"), EngineConfig(compute="float32", num_threads=1)) as engine:
        assert engine.step_weight_bytes(1) is not None
        assert engine.step_weight_bytes(2) is None
