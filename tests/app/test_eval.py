"""`ktdesk eval`: two readings of a text compared, and the figures on standard output alone."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import GGMLQuantizationType, GGUFWriter
from gguf.quants import quantize
from model_variants import Tensors, write_variant
from running import RunKtdesk, StartKtdesk

from ktdesk.exit_codes import ExitCode
from ktdesk_engine import kernels
from ktdesk_engine.config import Compute, EngineConfig
from ktdesk_engine.engine import Engine
from ktdesk_profiles.evaluation_text import load_evaluation_text

TinyModel = Callable[[str], Path]
ModelWith = Callable[[Callable[[GGUFWriter], None]], Path]

SENTENCE = "In the beginning there was an apple, and it fell. "
FIGURES = ("mean_kl", "p99_kl", "max_kl", "mean_kl_error", "top1_error")


@pytest.fixture(scope="module")
def quantized(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny mixture of experts whose int8 path rounds."""

    def quantize_all(tensors: Tensors) -> None:
        for name, values in tensors.items():
            if values.ndim > 1 and "ffn_gate_inp" not in name:
                tensors[name] = quantize(values, GGMLQuantizationType.Q8_0)

    return write_variant("llama-moe", tmp_path_factory.mktemp("eval") / "quantized.gguf", change=quantize_all)


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text(SENTENCE * 5, encoding="utf-8")
    return path


def normalized(scores: np.ndarray) -> np.ndarray:
    """Log-probabilities in float64 that sum to one."""
    wide = scores.astype(np.float64)
    return wide - np.logaddexp.reduce(wide, axis=-1, keepdims=True)


def facts(ktdesk: RunKtdesk, *arguments: str | Path) -> dict[str, Any]:
    result = ktdesk("eval", *arguments, "--json")
    assert result.code == 0, result.err
    parsed = json.loads(result.out)
    assert isinstance(parsed, dict)
    return parsed


def test_weights_that_nothing_rounds_are_not_apart_at_all(ktdesk: RunKtdesk, tiny_model: TinyModel, text: Path) -> None:
    options = ("--window", "64", "--compute", "int8", "--cache-type", "float32")
    found = facts(ktdesk, tiny_model("llama-moe"), "--text", text, *options)
    assert [found[name] for name in FIGURES] == [0] * len(FIGURES)
    assert found["top1"] == 1
    assert found["perplexity"] == found["reference_perplexity"]


def test_figures_that_cannot_be_kept_are_told_all_the_same(
    ktdesk: RunKtdesk, tiny_model: TinyModel, text: Path, tmp_path: Path
) -> None:
    (tmp_path / "quality").write_text("no folder")
    options = ("--text", text, "--window", "64", "--max-tokens", "64", "--compute", "int8", "--json")
    result = ktdesk("--home", tmp_path, "eval", tiny_model("llama-moe"), *options)
    assert (result.code, json.loads(result.out)["num_tokens"] > 0) == (ExitCode.OK, True)
    assert "the figures cannot be kept" in result.err


@pytest.mark.parametrize("compute", ["int8", "bf16"])
@pytest.mark.parametrize("isa", kernels.isas(with_variants=True))
def test_the_figures_are_those_of_the_scores(
    ktdesk: RunKtdesk, quantized: Path, text: Path, isa: str, compute: Compute
) -> None:
    with (
        Engine.load(quantized, EngineConfig(compute="float32")) as exact,
        Engine.load(quantized, EngineConfig(compute=compute, isa=isa)) as rounded,
    ):
        ids = exact.tokenizer.encode(text.read_text(encoding="utf-8"), add_bos=False)[:100]
        windows = [ids[:64], ids[64:]]
        p = normalized(np.concatenate([exact.score(window) for window in windows]))
        q = normalized(np.concatenate([rounded.score(window) for window in windows]))
        computed_as = (rounded.config.compute, rounded.config.isa, "float32")
    kl = (np.exp(p) * (p - q)).sum(axis=-1)
    chosen = [row for row in range(100) if row not in (63, 99)]
    nll = -q[chosen, np.array(ids)[np.array(chosen) + 1]]

    options = ("--window", "64", "--max-tokens", "100", "--compute", compute, "--isa", isa)
    found = facts(ktdesk, quantized, "--text", text, *options)
    assert (found["compute"], found["isa"], found["reference_compute"]) == computed_as
    assert (found["num_tokens"], found["num_windows"], found["num_positions"]) == (100, 2, 100)
    assert found["num_predicted"] == 98
    assert 1e-12 < found["mean_kl"] < 1e-3
    assert found["mean_kl"] == pytest.approx(kl.mean(), rel=1e-6)
    assert found["max_kl"] == pytest.approx(kl.max(), rel=1e-6)
    assert found["top1"] == (p.argmax(axis=-1) == q.argmax(axis=-1)).mean()
    assert found["perplexity"] == pytest.approx(np.exp(nll.mean()), rel=1e-6)
    assert found["perplexity"] != found["reference_perplexity"]


def test_float32_can_be_the_tested_one(ktdesk: RunKtdesk, quantized: Path, text: Path) -> None:
    found = facts(ktdesk, quantized, "--text", text, "--compute", "float32")
    assert found["compute"] == "float32"
    assert found["max_kl"] == 0


def test_the_text_that_ships_is_read_unless_another_is_named(ktdesk: RunKtdesk, tiny_model: TinyModel) -> None:
    path = tiny_model("llama-moe")
    found = facts(ktdesk, path, "--max-tokens", "300", "--compute", "int8")
    assert found["text"] == "english.txt of ktdesk"
    assert (found["num_tokens"], found["window"], found["num_windows"]) == (300, 512, 1)
    assert found["mean_kl_error"] is None
    with Engine.load(path, EngineConfig(compute="int8")) as engine:
        ids = engine.tokenizer.encode(load_evaluation_text(), add_bos=False)[:300]
        scores = engine.score(ids)
    nll = -scores[np.arange(299), ids[1:]].mean(dtype=np.float64)
    assert found["perplexity"] == pytest.approx(np.exp(nll), rel=1e-6)


def test_each_window_begins_with_bos_where_the_file_asks_for_it(
    ktdesk: RunKtdesk, model_with: ModelWith, text: Path
) -> None:
    def ask_for_bos(writer: GGUFWriter) -> None:
        writer.kv_data[0].pop("tokenizer.ggml.add_bos_token")
        writer.add_add_bos_token(True)

    found = facts(ktdesk, model_with(ask_for_bos), "--text", text, "--window", "11", "--max-tokens", "30")
    assert (found["num_tokens"], found["num_windows"]) == (30, 3)
    assert (found["num_positions"], found["num_predicted"]) == (33, 30)


def test_people_get_five_lines_and_the_progress_is_elsewhere(ktdesk: RunKtdesk, quantized: Path, text: Path) -> None:
    result = ktdesk("eval", quantized, "--text", text, "--window", "64", "--compute", "int8")
    assert result.code == 0
    lines = result.out.splitlines()
    assert [line.split(":")[0] for line in lines] == ["Model", "Text", "Perplexity", "KL divergence", "Same likeliest"]
    assert "int8" in lines[0]
    assert str(text) in lines[1]
    assert re.search(r"mean \S+ ± \S+, 99th percentile \S+, largest \S+ nats", lines[3])
    assert re.search(r"\d\d\.\d\d% ± \d\.\d\d% of \d+ positions", lines[4])
    assert re.fullmatch(r"Comparing \d windows\n", result.err)


@pytest.mark.parametrize(
    ("data", "part"),
    [
        (b"", "is empty"),
        (b"a", "has 1 token"),
        (b"an apple \xff", "not UTF-8: byte 0xff at 9"),
    ],
)
def test_a_text_that_cannot_be_used_is_refused(
    ktdesk: RunKtdesk, tiny_model: TinyModel, tmp_path: Path, data: bytes, part: str
) -> None:
    path = tmp_path / "bad.txt"
    path.write_bytes(data)
    result = ktdesk("eval", tiny_model("llama-moe"), "--text", path)
    assert result.code == ExitCode.USAGE
    assert part in result.error
    assert str(path) in result.error
    assert result.out == ""


def test_a_text_that_is_not_there_is_refused(ktdesk: RunKtdesk, tiny_model: TinyModel, tmp_path: Path) -> None:
    for path, part in ((tmp_path / "missing.txt", "No such file"), (tmp_path, "Is a directory")):
        result = ktdesk("eval", tiny_model("llama-moe"), "--text", path)
        assert result.code == ExitCode.USAGE
        assert f"{path}: {part}" in result.error


@pytest.mark.parametrize(
    ("options", "part"),
    [
        (("--window", "513"), "--window 513: the context is 512 tokens"),
        (("--window", "1"), "--window"),
        (("--max-tokens", "1"), "'--max-tokens': must be at least 2;"),
        (("--max-tokens", "1e6"), "'--max-tokens': must be a whole number;"),
        (("--compute", "float8"), "float8"),
        (("--isa", "sse9"), "sse9"),
    ],
)
def test_a_setting_out_of_range_is_a_usage_error(
    ktdesk: RunKtdesk, tiny_model: TinyModel, options: tuple[str, str], part: str
) -> None:
    result = ktdesk("eval", tiny_model("llama-moe"), *options)
    assert result.code == ExitCode.USAGE
    assert part in result.error


def test_a_model_that_is_not_there_is_refused(ktdesk: RunKtdesk, tmp_path: Path) -> None:
    result = ktdesk("eval", tmp_path / "none.gguf")
    assert result.code == ExitCode.MODEL_FILE


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, ExitCode.INTERRUPTED), (signal.SIGTERM, ExitCode.TERMINATED)]
)
def test_a_signal_stops_it_without_a_trace(
    start_ktdesk: StartKtdesk, talker: Path, tmp_path: Path, number: signal.Signals, code: ExitCode
) -> None:
    long = tmp_path / "long.txt"
    long.write_text(SENTENCE * 20_000, encoding="utf-8")
    process = start_ktdesk("eval", talker, "--text", long)
    assert process.stderr is not None
    with process:
        first = process.stderr.readline()
        assert first.startswith("Comparing ")
        process.send_signal(number)
        out, err = process.communicate(timeout=60)
    assert process.returncode == code
    assert out == ""
    assert err == ""


def test_bytes_instead_of_floats_cost_the_demo_model_next_to_nothing(ktdesk: RunKtdesk, demo_model: Path) -> None:
    found = facts(ktdesk, demo_model, "--max-tokens", "384", "--window", "128", "--compute", "int8")
    assert found["compute"] == "int8"
    assert 0 < found["mean_kl"] < 1e-4
    assert found["top1"] > 0.98
    assert found["reference_perplexity"] < 20  # of a text that the model can read
    assert found["perplexity"] == pytest.approx(found["reference_perplexity"], rel=1e-3)


def test_options_with_several_values_are_compared_side_by_side(
    ktdesk: RunKtdesk, text: Path, tiny_model: TinyModel
) -> None:
    model = tiny_model("qwen3moe")
    options = ("--text", text, "--window", "32", "--compute", "float32,int8", "--defer", "0,2")
    variants = facts(ktdesk, model, *options)["variants"]
    assert [(one["compute"], one["defer"]) for one in variants] == [
        ("float32", 0),
        ("float32", 2),
        ("int8", 0),
        ("int8", 2),
    ]
    assert variants[0]["mean_kl"] == 0
    assert variants[1]["mean_kl"] > 1e-3
    alone = facts(ktdesk, model, *options[:4], "--compute", "float32", "--defer", "2")
    assert alone["mean_kl"] == variants[1]["mean_kl"]


def test_fewer_experts_are_measured_and_people_get_a_line_for_each(
    ktdesk: RunKtdesk, text: Path, tiny_model: TinyModel
) -> None:
    result = ktdesk("eval", tiny_model("qwen3moe"), "--text", text, "--experts", "4,3", "--window", "32")
    assert result.code == 0, result.err
    lines = result.out.splitlines()
    assert len(lines) == 4
    assert lines[1].split() == ["file", "how", "perplexity", "mean", "KL", "99th", "pct.", "same", "likeliest"]
    assert "4 experts" in lines[2]
    assert "3 experts" in lines[3]
    assert [part for part in result.err.splitlines() if part.startswith("Comparing")][1].endswith("as auto, 3 experts")


def test_several_files_of_one_model_are_compared_with_the_first(
    ktdesk: RunKtdesk, text: Path, tiny_model: TinyModel, quantized: Path
) -> None:
    variants = facts(ktdesk, tiny_model("llama-moe"), quantized, "--text", text, "--compute", "float32")["variants"]
    assert variants[0]["mean_kl"] == 0
    assert variants[1]["mean_kl"] > 1e-6
    assert variants[1]["model"] == str(quantized)


def test_files_of_several_models_are_refused_with_their_names(
    ktdesk: RunKtdesk, text: Path, tiny_model: TinyModel
) -> None:
    one, other = tiny_model("llama-moe"), tiny_model("qwen3moe")
    result = ktdesk("eval", one, other, "--text", text)
    assert result.code == ExitCode.USAGE
    assert f"{one} and {other} are not of one model" in result.error
    assert "architecture llama and qwen3moe" in result.error
    assert "Comparing" not in result.err


def test_one_window_is_one_window(ktdesk: RunKtdesk, text: Path, quantized: Path) -> None:
    result = ktdesk("eval", quantized, "--text", text, "--max-tokens", "20", "--compute", "int8,float32")
    assert "Comparing 1 window as int8" in result.err
    assert "20 tokens in one window; against" in result.out


def test_a_run_that_was_stopped_goes_on_where_it_was(
    ktdesk: RunKtdesk, text: Path, tiny_model: TinyModel, tmp_path: Path
) -> None:
    journal = tmp_path / "eval.jsonl"
    options = (tiny_model("qwen3moe"), "--text", text, "--window", "16", "--compute", "float32", "--defer", "0,1")
    want = facts(ktdesk, *options)
    facts(ktdesk, *options, "--resume", journal)
    lines = journal.read_text().splitlines(keepends=True)
    assert len(lines) > 4
    journal.write_text("".join(lines[:3]) + lines[3][:20])  # killed while it wrote
    again = facts(ktdesk, *options, "--resume", journal)
    assert sorted(journal.read_text().splitlines()) == sorted(line.rstrip() for line in lines)
    for one, other in zip(again["variants"], want["variants"], strict=True):
        assert {**one, "seconds": 0} == {**other, "seconds": 0}
    other_text = tmp_path / "other.txt"
    other_text.write_text("another text than before", encoding="utf-8")
    refused = ktdesk("eval", options[0], "--text", other_text, "--resume", journal)
    assert refused.code == ExitCode.USAGE
    assert "was written by a run with another model, text or window" in refused.error


@pytest.mark.parametrize(
    ("options", "part"),
    [
        (("--defer", "3"), "--defer 3: this model uses 4 experts for a token and 2 stay immediate"),
        (("--defer", "0,3"), "--defer 3: this model uses 4 experts for a token and 2 stay immediate"),
        (("--defer", "1", "--experts", "4,2"), "--defer 1: this model uses 2 experts for a token"),
        (("--defer", "1,,2"), "--defer 1,,2: a value between the commas is missing"),
        (("--defer", "0,auto"), "--defer auto is for an accelerator"),
        (("--defer", "few"), "--defer must be auto, or an integer of at least 0: 'few'"),
        (("--experts", "0"), "--experts 0: must be a number of at least 1"),
        (("--experts", "5"), "--experts 5: this model was trained with 4 experts a token"),
        (("--resume", "/"), "--resume /: Is a directory"),
    ],
)
def test_what_cannot_be_compared_is_refused(
    ktdesk: RunKtdesk, tiny_model: TinyModel, text: Path, options: tuple[str, ...], part: str
) -> None:
    result = ktdesk("eval", tiny_model("qwen3moe"), "--text", text, *options)
    assert result.code == ExitCode.USAGE
    assert part in result.error
    assert "Comparing" not in result.error


def test_what_was_found_stands_beside_the_plan_of_the_file(
    ktdesk: RunKtdesk, text: Path, tiny_model: TinyModel
) -> None:
    model = tiny_model("qwen3moe")
    assert "ktdesk eval" not in ktdesk("plan", model).out
    for defer in ("0,2", "2,1"):
        assert ktdesk("eval", model, "--text", text, "--compute", "float32", "--defer", defer).code == 0
    figures = json.loads(ktdesk("plan", model, "--json").out)["measured_quality"]
    assert all(figure["mean_kl"] >= 0 for figure in figures)
    lines = ktdesk("plan", model).out.split("Measured with `ktdesk eval`, against the exact path:\n")[1].splitlines()
    options = [line.partition(":")[0].strip() for line in lines]
    assert options[0] == "--compute float32 --cache-type float32"
    assert sorted(options[1:]) == [f"{options[0]} --defer {count}" for count in (1, 2)]
    assert all("mean KL" in line and "same likeliest token" in line for line in lines)
