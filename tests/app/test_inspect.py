"""`ktdesk inspect`: what a file holds, and everything that is wrong with it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unicodedata import category

import numpy as np
import pytest
from gguf import GGUFWriter
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from model_variants import Tensors, write_variant
from running import RunKtdesk, StartKtdesk

from ktdesk.benchmarking import tile_notes
from ktdesk.exit_codes import ExitCode
from ktdesk.model_report import read_report
from ktdesk.report_text import as_text, to_json
from ktdesk_engine.errors import EngineError
from ktdesk_engine.gguf.file import GGUFFile
from ktdesk_engine.gguf.types import FOREIGN_TYPES
from ktdesk_wizard.tensor_classes import tensor_class

TinyModel = Callable[[str], Path]
ModelWith = Callable[[Callable[[GGUFWriter], None]], Path]
F64 = 28
assert FOREIGN_TYPES[F64].name == "F64"


def facts(ktdesk: RunKtdesk, path: Path, code: ExitCode = ExitCode.OK) -> dict[str, Any]:
    result = ktdesk("inspect", path, "--json")
    assert result.code == code
    parsed = json.loads(result.out)
    assert isinstance(parsed, dict)
    return parsed


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("blk.0.ffn_gate_exps.weight", "routed experts"),
        ("blk.3.ffn_down_exps.bias", "routed experts"),
        ("blk.3.ffn_gate_up_exps.weight", "routed experts"),
        ("blk.0.ffn_up_shexp.weight", "shared experts"),
        ("blk.0.ffn_gate_inp_shexp.weight", "shared experts"),
        ("blk.0.ffn_gate_inp.weight", "router"),
        ("blk.0.exp_probs_b.bias", "router"),
        ("blk.0.attn_norm.weight", "norms"),
        ("blk.0.attn_q_norm.weight", "norms"),
        ("blk.0.attn_kv_a_norm.weight", "norms"),
        ("output_norm.weight", "norms"),
        ("blk.0.post_attention_norm.weight", "norms"),
        ("blk.0.attn_q.weight", "attention"),
        ("blk.0.attn_kv_a_mqa.weight", "attention"),
        ("blk.0.attn_sinks.weight", "attention"),
        ("blk.0.attn_output.weight", "attention"),
        ("blk.0.ffn_down.weight", "dense feed-forward"),
        ("token_embd.weight", "embedding and head"),
        ("output.weight", "embedding and head"),
        ("rope_freqs.weight", "other"),
    ],
)
def test_a_tensors_class_is_known_from_its_name(name: str, expected: str) -> None:
    assert tensor_class(name) == expected


def test_the_facts_of_a_sound_model(ktdesk: RunKtdesk, tiny_model: TinyModel) -> None:
    path = tiny_model("llama-moe")
    found = facts(ktdesk, path)
    assert found["architecture"] == "llama"
    assert found["name"] == "tiny llama-moe"
    assert found["context_length"] == 512
    assert found["num_bytes"] == path.stat().st_size
    assert found["shapes"]["layers"] == 3
    assert found["shapes"]["experts"] == 8
    assert found["shapes"]["experts_used"] == 2
    assert found["shapes"]["key_value_heads"] == 2
    assert found["runs"] is True
    assert found["problems"] == []


def test_bytes_are_counted_by_class_and_type(ktdesk: RunKtdesk, tiny_model: TinyModel) -> None:
    groups = facts(ktdesk, tiny_model("llama-moe"))["tensors"]
    assert sum(group["share"] for group in groups) == pytest.approx(1)
    routed = next(group for group in groups if group["tensor_class"] == "routed experts")
    num_values = 3 * 3 * 8 * 64 * 128  # layers, gate up down, experts, width, hidden
    assert routed == {
        "tensor_class": "routed experts",
        "type_name": "F32",
        "num_tensors": 9,
        "num_values": num_values,
        "num_bytes": 4 * num_values,
        "share": routed["share"],
    }


def test_the_tokenizer_is_described(ktdesk: RunKtdesk, tiny_model: TinyModel) -> None:
    tokenizer = facts(ktdesk, tiny_model("llama-moe"))["tokenizer"]
    assert (tokenizer["model"], tokenizer["pre"], tokenizer["num_tokens"]) == ("gpt2", "gpt-2", 266)
    assert tokenizer["special"] == {"bos": {"id": 264, "text": "<|bos|>"}, "eos": {"id": 265, "text": "<|eos|>"}}
    assert tokenizer["end"] == [{"id": 265, "text": "<|eos|>"}]


def test_a_missing_template_is_told_with_the_one_that_is_used_instead(ktdesk: RunKtdesk, tiny_model: TinyModel) -> None:
    assert facts(ktdesk, tiny_model("llama-moe"))["chat_template"]["name"] == "fallback:plain"
    assert "none in the file, fallback:plain" in ktdesk("inspect", tiny_model("llama-moe")).out


def test_the_template_of_the_file_is_printed_on_demand(ktdesk: RunKtdesk, model_with: ModelWith) -> None:
    path = model_with(lambda writer: writer.add_chat_template("{{ messages[0].content }}\x1b[31m"))
    assert "messages[0]" not in ktdesk("inspect", path).out
    printed = ktdesk("inspect", path, "--template").out
    assert "{{ messages[0].content }}\u241b[31m" in printed


def test_the_text_for_people_fits_the_terminal_and_says_that_it_runs(ktdesk: RunKtdesk, tiny_model: TinyModel) -> None:
    result = ktdesk("inspect", tiny_model("deepseek2-v3"))
    assert result.code == ExitCode.OK
    assert max(len(line) for line in result.out.splitlines() if str(tiny_model("deepseek2-v3")) not in line) <= 80
    assert ktdesk("inspect", tiny_model("llama-moe")).out.endswith("It runs.\n")


def test_what_keeps_the_machine_from_tiles_is_said(
    ktdesk: RunKtdesk, tiny_model: TinyModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    why = "the operating system refuses this process the use of tiles (Operation not permitted)"
    monkeypatch.setattr("ktdesk_engine.kernels.why_no_amx", lambda: why)
    result = ktdesk("inspect", tiny_model("llama-moe"))
    assert f", for {why}." in " ".join(result.out.split())
    assert json.loads(ktdesk("inspect", tiny_model("llama-moe"), "--json").out)["no_tiles"] == why
    assert tile_notes(None) == (f"no tiles: {why}",)
    monkeypatch.setattr("ktdesk_engine.kernels.why_no_amx", lambda: None)
    assert tile_notes(6) == ("on tiles from 6 tokens of an expert on",)
    assert json.loads(ktdesk("inspect", tiny_model("llama-moe"), "--json").out)["no_tiles"] is None


def test_all_problems_are_listed_not_only_the_first(ktdesk: RunKtdesk, model_with: ModelWith) -> None:
    def edit(writer: GGUFWriter) -> None:
        writer.kv_data[0]["tokenizer.ggml.pre"].value = "klingon"
        writer.add_chat_template("{% endif %}")
        writer.add_float32("general.sampling.temp", -1.0)
        writer.tensors[0].pop("blk.1.attn_q.weight")

    path = model_with(edit)
    problems = facts(ktdesk, path, ExitCode.MODEL_FILE)["problems"]
    assert [problem["part"] for problem in problems] == ["model", "tokenizer", "chat template", "sampling"]
    assert [problem["exit_code"] for problem in problems] == [3, 4, 5, 3]
    for problem, words in zip(problems, ("blk.1.attn_q.weight", "klingon", "template", "temperature"), strict=True):
        assert words in problem["message"]
    text = ktdesk("inspect", path).out
    assert "It does not run:" in text
    assert all(problem["message"] in text for problem in problems)


def test_a_wrongly_shaped_tensor_is_named_with_both_shapes(ktdesk: RunKtdesk, tmp_path: Path) -> None:
    def narrow(tensors: Tensors) -> None:
        tensors["blk.2.attn_k.weight"] = tensors["blk.2.attn_k.weight"][:32]

    path = write_variant("llama-moe", tmp_path / "narrow.gguf", change=narrow)
    (problem,) = facts(ktdesk, path, ExitCode.MODEL_FILE)["problems"]
    assert "blk.2.attn_k.weight" in problem["message"]
    assert "32" in problem["message"]
    assert "64" in problem["message"]


def test_a_router_in_float64_is_named_once(ktdesk: RunKtdesk, tmp_path: Path) -> None:
    def widen(tensors: Tensors) -> None:
        tensors["blk.0.ffn_gate_inp.weight"] = tensors["blk.0.ffn_gate_inp.weight"].astype(np.float64)

    path = write_variant("llama-moe", tmp_path / "float64.gguf", change=widen)
    (problem,) = facts(ktdesk, path, ExitCode.UNSUPPORTED)["problems"]
    assert problem["part"] == "tensor types"
    assert "F64" in problem["message"]


def test_an_unknown_architecture_is_named(ktdesk: RunKtdesk, model_with: ModelWith) -> None:
    def edit(writer: GGUFWriter) -> None:
        writer.kv_data[0]["general.architecture"].value = "mamba9"

    found = facts(ktdesk, model_with(edit), ExitCode.UNSUPPORTED)
    assert found["architecture"] == "mamba9"
    assert "'mamba9'" in found["problems"][0]["message"]
    assert found["tokenizer"]["num_tokens"] == 266  # the rest is shown all the same


def test_a_file_without_an_architecture_is_shown_as_far_as_it_goes(ktdesk: RunKtdesk, model_with: ModelWith) -> None:
    path = model_with(lambda writer: writer.kv_data[0].pop("general.architecture"))
    found = facts(ktdesk, path, ExitCode.MODEL_FILE)
    assert found["architecture"] is None
    assert [problem["part"] for problem in found["problems"]] == ["architecture"]
    assert ktdesk("inspect", path).code == ExitCode.MODEL_FILE


def test_a_file_that_cannot_be_opened_is_an_error(ktdesk: RunKtdesk, tmp_path: Path) -> None:
    path = tmp_path / "pointer.gguf"
    path.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 12345\n")
    result = ktdesk("inspect", path, "--json")
    assert result.code == ExitCode.MODEL_FILE
    assert "Git LFS" in result.error
    assert result.out == ""


def test_control_characters_in_a_file_do_not_reach_the_terminal(ktdesk: RunKtdesk, model_with: ModelWith) -> None:
    def edit(writer: GGUFWriter) -> None:
        writer.kv_data[0]["general.name"].value = "evil\x1b]0;title\x07\nname"

    assert "\x1b" not in ktdesk("inspect", model_with(edit)).out


def test_a_reader_that_goes_away_ends_it_quietly(start_ktdesk: StartKtdesk, tiny_model: TinyModel) -> None:
    process = start_ktdesk("inspect", tiny_model("llama-moe"))
    assert process.stdout is not None
    with process:
        process.stdout.close()
        assert process.wait(60) == ExitCode.OUTPUT_CLOSED
        assert process.stderr is not None
        assert process.stderr.read() == ""


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_flipped_bytes_end_in_a_report_or_a_clean_error(
    tiny_model: TinyModel, tmp_path: Path, data: st.DataObject
) -> None:
    source = tiny_model("llama-moe")
    content = bytearray(source.read_bytes())
    with GGUFFile.open(source) as file:
        header_bytes = min(tensor.offset for tensor in file.tensors.values())
    for place in data.draw(st.lists(st.integers(0, header_bytes - 1), min_size=1, max_size=3)):
        content[place] = data.draw(st.integers(0, 255))
    damaged = tmp_path / "damaged.gguf"
    damaged.write_bytes(content)
    try:
        report = read_report(damaged)
    except EngineError:
        return  # what such an error says is tested with the engine
    assert report.exit_code is not ExitCode.UNEXPECTED
    text = as_text(report, with_template=True)
    assert {letter for letter in text if category(letter) == "Cc"} <= {"\n", "\t"}
    assert json.loads(to_json(report))["runs"] is report.runs
