"""`ktdesk bench`: what it measures, prints, stores and compares. How fast it was, no test asks."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from benchmarks import use_small_probes
from running import Result, RunKtdesk

from ktdesk.bench_report import BenchReport, as_facts, compare, read_stored
from ktdesk.bench_text import as_text, busy_warning
from ktdesk.errors import UsageError
from ktdesk.exit_codes import ExitCode
from ktdesk_engine import kernels
from ktdesk_engine.benchmark.ceilings import Ceilings
from ktdesk_engine.benchmark.conditions import Load, Machine
from ktdesk_engine.benchmark.samples import Row, Sample, Work
from ktdesk_wizard.plan.corrections import conditions_of, conditions_of_run
from ktdesk_wizard.plan.wishes import Wishes
from ktdesk_wizard.probe.probe import probe
from ktdesk_wizard.prove.run import engine_build
from ktdesk_wizard.prove.store import load_runs

LAYER = ("--kernels", "--shape", "64,32,4,2", "--type", "q8_0", "--tokens", "1,20", "--repeat", "2")
SPREADS = ("step_seconds", "tok_s", "read_bytes_s", "read_share", "ops_s", "peak_share", "times_floor")


@pytest.fixture(autouse=True)
def _fast(monkeypatch: pytest.MonkeyPatch) -> None:
    use_small_probes(monkeypatch)
    monkeypatch.setattr("ktdesk_engine.benchmark.layer.SAMPLE_SECONDS", 0.001)


def facts_of(result: Result) -> dict[str, Any]:
    assert result.code == ExitCode.OK, result.err
    facts = json.loads(result.out)
    assert isinstance(facts, dict)
    return facts


def report_of(*seconds: float, name: str = "decode 8 at 0", load: Load | None = None) -> BenchReport:
    """8 tokens of 100 bytes and 40 operations each, on a machine that does 1,000 of both a second."""
    work = Work(num_steps=8, num_tokens=8, operations=320, peak="int8")
    samples = tuple(Sample(value, 800, Ceilings(1000.0, {"int8": 1000.0})) for value in seconds)
    return BenchReport(
        subject="a model",
        date="2026-01-02T03:04:05+00:00",
        machine=Machine("Abacus 9000", 4, 8 << 30, 1 << 20),
        isa="avx2",
        threads=4,
        compute="int8",
        repeat=len(seconds),
        notes=("a note",),
        facts={},
        load=load or Load(0.0, 0.0, 1.0),
        rows=(Row(name, work, samples),),
    )


def stored(report: BenchReport, path: Path) -> Path:
    path.write_text(json.dumps(as_facts(report)), encoding="utf-8")
    return path


def test_a_model_is_measured_and_everything_it_depends_on_is_told(
    ktdesk: RunKtdesk, tiny_model: Callable[[str], Path]
) -> None:
    arguments = ("--prompt", "20", "--prompt", "5", "--depth", "0", "--depth", "9", "--answer", "2", "--repeat", "3")
    arguments += ("--batch", "1", "--batch", "3", "--cache-type", "bf16")
    facts = facts_of(ktdesk("bench", tiny_model("llama-moe"), *arguments, "--threads", "1", "--json"))
    assert facts["subject"].startswith("tiny llama-moe, llama, ")
    assert (facts["isa"], facts["threads"], facts["repeat"]) == (kernels.isas()[-1], 1, 3)
    assert facts["compute"] == ("mixed" if "amx" in kernels.isas() else "int8")
    assert facts["machine"]["cpu"]
    assert facts["machine"]["num_cores"] >= 1
    assert facts["date"].endswith("+00:00")
    assert facts["load"]["load_average"] >= 0
    assert facts["model"]["num_used"] == 2
    assert facts["model"]["token_file_bytes"] == facts["model"]["token_memory_bytes"] > 0
    jobs = ("prefill 20", "prefill 5", "decode 2", "decode 2 x 3")
    names = [f"{what} at {depth}" for depth in (0, 9) for what in jobs]
    assert facts["cache"] == {"type": "bf16", "token_bytes": 3 * 2 * 2 * 32 * 2}
    assert facts["program"] is True
    assert all(0 < facts["python_share"][name]["median"] < 1 for name in ("greedy", "sampled"))
    assert [row["name"] for row in facts["rows"]] == names
    for row in facts["rows"]:
        for spread in (row[name] for name in SPREADS):
            assert 0 < spread["minimum"] <= spread["median"] <= spread["maximum"]
    assert facts["ceilings"]["read_bytes_s"]["median"] > 0
    assert {*facts["ceilings"]["peak_ops_s"]} - {"int8 tiles"} == {"float32"}  # the tiny model is of floats


def test_prefill_or_decoding_can_be_left_out(ktdesk: RunKtdesk, tiny_model: Callable[[str], Path]) -> None:
    path = tiny_model("llama-dense")
    only_decode = facts_of(ktdesk("bench", path, "--prompt", "0", "--answer", "1", "--repeat", "1", "--json"))
    assert [row["name"] for row in only_decode["rows"]] == ["decode 1 at 0"]
    only_prefill = facts_of(ktdesk("bench", path, "--prompt", "4", "--answer", "0", "--repeat", "1", "--json"))
    assert [row["name"] for row in only_prefill["rows"]] == ["prefill 4 at 0"]


def test_the_text_for_people_names_machine_run_and_ceilings(
    ktdesk: RunKtdesk, tiny_model: Callable[[str], Path]
) -> None:
    result = ktdesk(
        "bench", tiny_model("llama-moe"), "--prompt", "4", "--answer", "1", "--repeat", "1", "--threads", "1"
    )
    assert result.code == ExitCode.OK
    for words in (
        "tiny llama-moe",
        "2 of 8 experts",
        "1 thread,",
        kernels.isas()[-1],
        "GB/s",
        "x floor",
        "decode 1 at 0",
        "cache in f16",
        "Python and the choice of the token take",
    ):
        assert words in result.out
    without = ktdesk(
        "bench", tiny_model("llama-moe"), "--prompt", "0", "--answer", "1", "--repeat", "1", "--no-program"
    )
    assert "without recorded programs" in without.out


@pytest.mark.parametrize("isa", kernels.isas())
def test_a_layer_is_measured_without_a_model(ktdesk: RunKtdesk, isa: str) -> None:
    facts = facts_of(ktdesk("bench", *LAYER, "--isa", isa, "--json"))
    assert facts["isa"] == isa
    assert [row["name"] for row in facts["rows"]] == ["layer 1", "layer 20"]
    assert facts["layer"]["shape"] == {"H": 64, "I": 32, "E": 4, "K": 2}
    assert facts["layer"]["types"] == ["Q8_0", "Q8_0"]
    assert facts["rows"][0]["peak"] == "int8"


def test_a_run_is_compared_with_a_stored_one(ktdesk: RunKtdesk, tmp_path: Path) -> None:
    path = tmp_path / "before.json"
    path.write_text(ktdesk("bench", *LAYER, "--json").out)
    against = facts_of(ktdesk("bench", *LAYER, "--json", "--against", path))["against"]
    assert [ratio["name"] for ratio in against["ratios"]] == ["layer 1", "layer 20"]
    assert all(ratio["tok_s"] > 0 for ratio in against["ratios"])
    assert (against["differences"], against["missing"]) == ([], [])
    assert "tok/s x " in ktdesk("bench", *LAYER, "--against", path).out


def test_a_comparison_is_the_ratio_of_medians_and_names_what_differs(tmp_path: Path) -> None:
    before = stored(report_of(4.0, 2.0, 8.0), tmp_path / "before.json")
    now = replace(report_of(1.0, 2.0, 3.0), isa="avx512")
    comparison = compare(now, read_stored(before), before)
    (ratio,) = comparison.ratios
    assert ratio.tok_s == 2.0
    assert ratio.read_share == pytest.approx(2.0)
    assert comparison.differences == ("isa was avx2, is avx512",)
    text = as_text(now, comparison)
    assert "not the same: isa was avx2, is avx512" in text
    assert "tok/s x 2.00" in text


def test_a_row_that_the_stored_run_lacks_is_named(tmp_path: Path) -> None:
    before = stored(report_of(1.0), tmp_path / "before.json")
    now = report_of(1.0, name="decode 9 at 0")
    comparison = compare(now, read_stored(before), before)
    assert comparison.ratios == ()
    assert comparison.missing == ("decode 9 at 0",)


@pytest.mark.parametrize("content", ["", "{}", "[]", "no json", '{"version": 99}', "null"])
def test_a_stored_run_that_is_something_else_is_refused_before_any_work(
    ktdesk: RunKtdesk, tmp_path: Path, content: str
) -> None:
    path = tmp_path / "before.json"
    path.write_text(content)
    result = ktdesk("bench", *LAYER, "--against", path)
    assert result.code == ExitCode.USAGE
    assert "before.json" in result.error
    assert result.out == ""


def test_a_stored_rate_of_nothing_is_refused(tmp_path: Path) -> None:
    facts = as_facts(report_of(1.0))
    facts["rows"][0]["tok_s"]["median"] = 0.0
    path = tmp_path / "zero.json"
    path.write_text(json.dumps(facts))
    with pytest.raises(UsageError, match=r"zero\.json"):
        read_stored(path)


def test_a_row_shows_medians_and_shares() -> None:
    (line,) = [line for line in as_text(report_of(2.0, 1.0, 4.0)).splitlines() if line.startswith("decode 8 at 0")]
    assert (
        line
        == "decode 8 at 0          250.00        4.0 (2.0..8.0)    0.0  40% (20..80)   0.000   16% (8..32)     2.50"
    )


def test_a_busy_machine_is_told_in_one_line() -> None:
    assert busy_warning(report_of(1.0)) is None
    busy = report_of(1.0, load=Load(1.5, 0.25, 7.0))
    warning = busy_warning(busy)
    assert warning is not None
    assert warning in as_text(busy).splitlines()
    for words in ("1.5 of 4 cores", "hypervisor took 0.2", "load average 7.0"):
        assert words in warning


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (("--json",), "--kernels"),
        (("m.gguf", "--kernels"), "--kernels"),
        (("m.gguf", "--shape", "1,2,3,4"), "need --kernels"),
        (("--kernels", "--prompt", "5"), "--tokens"),
        (("--kernels", "--shape", "qwen4"), "qwen4"),
        (("--kernels", "--shape", "64,32,4"), "H,I,E,K"),
        (("--kernels", "--shape", "64,32,4,9"), "experts"),
        (("--kernels", "--type", "Q9_Z"), "Q9_Z"),
        (("--kernels", "--tokens", "1,x"), "1,x"),
        (("--kernels", "--tokens", "0"), "tokens"),
        (("--kernels", "--isa", "sse9"), "sse9"),
        (("--kernels", "--threads", "0"), "1..1024"),
        (("--kernels", "--compute", "float8"), "float8"),
        (("--kernels", "--repeat", "0"), "repeat"),
        (("--kernels", "--against", "nowhere.json"), "nowhere.json"),
        (("m.gguf", "--prompt", "0", "--answer", "0"), "neither prefill nor decode"),
        (("m.gguf", "--depth", "-1"), "depth"),
        (("m.gguf", "--batch", "0"), "batch"),
        (("--kernels", "--batch", "2"), "--tokens"),
    ],
)
def test_what_makes_no_sense_is_a_usage_error(ktdesk: RunKtdesk, arguments: tuple[str, ...], part: str) -> None:
    result = ktdesk("bench", *arguments)
    assert result.code == ExitCode.USAGE
    assert part in result.error


def test_more_than_the_model_was_trained_for_is_refused(ktdesk: RunKtdesk, tiny_model: Callable[[str], Path]) -> None:
    result = ktdesk("bench", tiny_model("llama-moe"), "--prompt", "500", "--depth", "13")
    assert result.code == ExitCode.USAGE
    assert "512" in result.error


@pytest.mark.parametrize("options", [("m.gguf", "--hybrid"), ("m.gguf", "--kernels"), ("--kernels", "--hybrid")])
def test_two_things_at_once_are_refused(ktdesk: RunKtdesk, options: tuple[str, ...]) -> None:
    result = ktdesk("bench", *options)
    assert result.code == ExitCode.USAGE
    assert "leave all but one out" in result.error


def test_alone_it_says_what_it_wants(ktdesk: RunKtdesk) -> None:
    result = ktdesk("bench")
    assert result.code == ExitCode.USAGE
    assert result.err.startswith("ktdesk: error: name a MODEL")


def test_what_was_planned_stands_beside_it_and_a_second_run_is_corrected_by_the_first(
    ktdesk: RunKtdesk, tiny_model: Callable[[str], Path], tmp_path: Path
) -> None:
    model = tiny_model("llama-moe")
    bench = ("--home", tmp_path, "bench", model, "--prompt", "8", "--answer", "2", "--repeat", "1", "--json")
    first = facts_of(ktdesk(*bench))["planned"]
    assert [line["name"] for line in first] == ["memory", "prefill 8 at 0", "decode 2 at 0"]
    assert not any(line["is_corrected"] for line in first)
    assert all(line["error"] == pytest.approx(line["planned"] / line["measured"] - 1) for line in first)
    second = facts_of(ktdesk(*bench))["planned"]
    assert all(line["is_corrected"] for line in second)
    plan = ktdesk("--home", tmp_path, "plan", model, "--explain").out
    assert "measured difference" in plan


def test_a_run_is_not_kept_where_that_is_not_wanted_or_not_possible(
    ktdesk: RunKtdesk, tiny_model: Callable[[str], Path], tmp_path: Path
) -> None:
    bench = ("bench", tiny_model("llama-moe"), "--prompt", "8", "--answer", "2", "--repeat", "1")
    assert ktdesk("--home", tmp_path, *bench, "--no-keep").code == ExitCode.OK
    assert not (tmp_path / "runs").exists()
    (tmp_path / "file").touch()
    result = ktdesk("--home", tmp_path / "file", *bench)
    assert result.code == ExitCode.OK
    assert "the measured run cannot be kept" in result.err


def test_the_correction_is_of_the_run_that_the_plan_leads_to(
    ktdesk: RunKtdesk, tiny_model: Callable[[str], Path], tmp_path: Path
) -> None:
    """What the engine decides for `auto` is what plans look for."""
    ktdesk("--home", tmp_path, "bench", tiny_model("qwen3moe"), "--prompt", "8", "--answer", "2", "--repeat", "1")
    (run,) = load_runs(tmp_path)
    facts = probe(tmp_path)
    assert conditions_of_run(run) == conditions_of(facts, Wishes(), engine_build())
