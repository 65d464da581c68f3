"""Each way that files of one architecture may differ, against the same model written the usual way."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import GGMLQuantizationType, quants
from model_variants import Tensors, load_with, write_variant
from scoring import load_model, score
from tiny_models import TINY, TinyExperts, TinyLatent

from ktdesk_engine.errors import ModelFileError

TinyPath = Callable[[str], Path]
PROMPT = [*range(40, 64), 1, 2]  # longer than the window of gpt-oss


def assert_same(got: Path, want: Path) -> None:
    """To the last bit."""
    np.testing.assert_array_equal(score(load_model(got), PROMPT), score(load_model(want), PROMPT))


def distance(one: Path, other: Path) -> float:
    return float(np.abs(score(load_model(one), PROMPT) - score(load_model(other), PROMPT)).max())


def moved(tensors: Tensors, name: str) -> np.ndarray:
    """Takes a tensor out."""
    return tensors.pop(name)


@pytest.mark.parametrize(
    ("name", "changed"),
    [
        ("deepseek2-lite", {"expert_weights_scale": 0.0}),
        ("deepseek2-lite", {"expert_weights_scale": None}),
        ("deepseek2-lite", {"expert_gating_func": None}),
        ("deepseek2-lite", {"expert_gating_func": 0}),
        ("deepseek2-lite", {"expert_group_count": 1}),
        ("glm4moe", {"expert_gating_func": None}),
        ("glm4moe", {"rope.dimension_sections": np.array([8, 4, 4, 0], np.int32)}),
        ("gpt-oss", {"attention.sliding_window_pattern": 2}),
        ("gpt-oss", {"attention.sliding_window_pattern": np.array([True, False, True, False])}),
        ("gpt-oss", {"attention.scale": 64**-0.5}),
        ("deepseek2-lite", {"attention.scale": (1 + 0.0707 / 0.1 * 0.1 * math.log(40)) ** 2 / 8}),
        ("deepseek2-lite", {"attention.sliding_window": 512, "attention.scale": 0.0}),
        ("deepseek2-lite", {"expert_shared_feed_forward_length": 64}),
        ("qwen2", {"attention.sliding_window": 512}),
        ("qwen3moe", {"expert_shared_feed_forward_length": 0, "expert_weights_norm": True}),
        ("gpt-oss", {"rope.freq_base_swa": 150000.0}),
        ("gpt-oss", {"expert_gating_func": 3}),
        ("minimax-m2", {"expert_feed_forward_length": None}),
        ("llama-moe", {"expert_feed_forward_length": None}),
        ("qwen2moe", {"expert_feed_forward_length": None, "feed_forward_length": 256}),
        ("qwen2moe", {"expert_shared_feed_forward_length": None, "feed_forward_length": 128}),
        ("qwen2", {"attention.head_count_kv": np.array([2, 2], np.int32), "attention.key_length": None}),
        ("deepseek2-v3", {"attention.head_count": np.array([4] * 4), "feed_forward_length": np.array([192] * 4)}),
        ("qwen3moe", {"rope.scaling.type": "none", "rope.scaling.factor": 8.0}),
    ],
)
def test_metadata_that_says_the_same_in_other_words(
    name: str, changed: Mapping[str, Any], tiny_model: TinyPath
) -> None:
    want = score(load_model(tiny_model(name)), PROMPT)
    np.testing.assert_array_equal(score(load_with(tiny_model(name), changed), PROMPT), want)


@pytest.mark.parametrize(
    ("name", "changed"),
    [
        ("deepseek2-lite", {"expert_weights_scale": 2.0}),
        ("deepseek2-lite", {"expert_weights_norm": True}),
        ("deepseek2-lite", {"expert_gating_func": 2}),
        ("deepseek2-lite", {"rope.scaling.yarn_log_multiplier": 0.1}),
        ("deepseek2-lite", {"rope.scaling.yarn_log_multiplier": None}),
        ("deepseek2-v3", {"expert_group_count": None}),
        ("deepseek2-v3", {"expert_group_used_count": 1}),
        ("gpt-oss", {"attention.scale": 0.25}),
        ("gpt-oss", {"attention.sliding_window_pattern": np.array([True, True, True, False])}),
        ("gpt-oss", {"attention.sliding_window_pattern": 1}),
        ("gpt-oss", {"attention.sliding_window_pattern": 0}),
        ("gpt-oss", {"attention.sliding_window": 8}),
        ("gpt-oss", {"rope.scaling.type": "none"}),
    ],
)
def test_metadata_that_changes_the_answer(name: str, changed: Mapping[str, Any], tiny_model: TinyPath) -> None:
    before = score(load_model(tiny_model(name)), PROMPT)
    assert np.abs(score(load_with(tiny_model(name), changed), PROMPT) - before).max() > 1e-3


def merge_gate_and_up(tensors: Tensors) -> None:
    for gate in [tensor for tensor in tensors if ".ffn_gate_exps." in tensor]:
        halves = [moved(tensors, gate), moved(tensors, gate.replace("gate", "up"))]
        tensors[gate.replace("gate", "gate_up")] = np.concatenate(halves, axis=1)


@pytest.mark.parametrize("name", ["deepseek2-v3", "deepseek2-lite", "qwen3moe"])
def test_gate_and_up_may_be_one_tensor_with_the_gate_first(name: str, tiny_model: TinyPath, tmp_path: Path) -> None:
    assert_same(write_variant(name, tmp_path / "merged.gguf", change=merge_gate_and_up), tiny_model(name))


def test_so_may_their_biases(tmp_path: Path) -> None:
    def add_biases(tensors: Tensors) -> None:
        for index, name in enumerate([name for name in tensors if "_exps.weight" in name]):
            bias = np.random.default_rng(index).standard_normal(tensors[name].shape[:2])
            tensors[name.replace("weight", "bias")] = bias.astype(np.float32)

    def add_and_merge(tensors: Tensors) -> None:
        add_biases(tensors)
        merge_gate_and_up(tensors)

    merged = write_variant("deepseek2-v3", tmp_path / "merged.gguf", change=add_and_merge)
    assert_same(merged, write_variant("deepseek2-v3", tmp_path / "pair.gguf", change=add_biases))


@pytest.mark.parametrize("name", ["qwen2", "glm4moe", "minimax-m2"])
def test_queries_keys_and_values_may_be_one_tensor(name: str, tiny_model: TinyPath, tmp_path: Path) -> None:
    def fuse(tensors: Tensors) -> None:
        for q in [tensor for tensor in tensors if ".attn_q.weight" in tensor or ".attn_q.bias" in tensor]:
            parts = [moved(tensors, q.replace("attn_q", f"attn_{part}")) for part in "qkv"]
            tensors[q.replace("attn_q", "attn_qkv")] = np.concatenate(parts)

    assert_same(write_variant(name, tmp_path / "fused.gguf", change=fuse), tiny_model(name))


@pytest.mark.parametrize("name", ["qwen3moe", "deepseek2-v3"])
def test_without_a_head_the_embedding_is_the_head(name: str, tmp_path: Path) -> None:
    def tie(tensors: Tensors) -> None:
        tensors["output.weight"] = tensors["token_embd.weight"]

    def leave_out(tensors: Tensors) -> None:
        moved(tensors, "output.weight")

    tied = write_variant(name, tmp_path / "tied.gguf", change=leave_out)
    assert_same(tied, write_variant(name, tmp_path / "twice.gguf", change=tie))


@pytest.mark.parametrize("name", ["glm4moe", "deepseek2-v3", "qwen3moe"])
@pytest.mark.parametrize("has_tensors", [True, False])
def test_blocks_for_the_token_after_the_next_are_left_out(
    name: str, has_tensors: bool, tiny_model: TinyPath, tmp_path: Path
) -> None:
    last = TINY[name].layers

    def add_block(tensors: Tensors) -> None:
        if has_tensors:
            for tensor in [tensor for tensor in tensors if tensor.startswith(f"blk.{last - 1}.")]:
                tensors[tensor.replace(f"blk.{last - 1}.", f"blk.{last}.")] = tensors[tensor]
            tensors[f"blk.{last}.nextn.eh_proj.weight"] = np.ones((128, 256), np.float32)

    keys = {"block_count": last + 1, "nextn_predict_layers": 1, "attention.head_count": [4] * (last + 1)}
    assert_same(write_variant(name, tmp_path / "mtp.gguf", keys, add_block), tiny_model(name))


def test_a_file_with_nothing_but_such_a_block_is_refused(tmp_path: Path) -> None:
    def keep_last(tensors: Tensors) -> None:
        for tensor in [tensor for tensor in tensors if tensor.startswith(("blk.0", "blk.1"))]:
            moved(tensors, tensor)

    path = write_variant("glm4moe", tmp_path / "draft.gguf", {"nextn_predict_layers": 1}, keep_last)
    with pytest.raises(ModelFileError, match=r"'blk\.0\.attn_norm\.weight' is missing"):
        load_model(path)


def test_layers_may_have_feed_forward_networks_of_different_widths(tmp_path: Path) -> None:
    def silence(tensors: Tensors) -> None:
        tensors["blk.1.ffn_down.weight"][:, 96:] = 0

    def cut(tensors: Tensors) -> None:
        for part in ("gate", "up"):
            tensors[f"blk.1.ffn_{part}.weight"] = tensors[f"blk.1.ffn_{part}.weight"][:96]
        tensors["blk.1.ffn_down.weight"] = tensors["blk.1.ffn_down.weight"][:, :96]

    narrow = write_variant("llama-dense", tmp_path / "cut.gguf", {"feed_forward_length": [192, 96]}, cut)
    assert distance(narrow, write_variant("llama-dense", tmp_path / "silent.gguf", change=silence)) < 1e-5


def test_layers_may_have_different_numbers_of_key_heads(tiny_model: TinyPath, tmp_path: Path) -> None:
    def repeat_heads(tensors: Tensors) -> None:
        for part in ("k", "v"):
            for kind in ("weight", "bias"):
                name = f"blk.1.attn_{part}.{kind}"
                heads = tensors[name].reshape(2, 32, -1)
                tensors[name] = np.repeat(heads, 2, axis=0).reshape(128, *tensors[name].shape[1:])

    keys = {"attention.head_count_kv": [2, 4]}
    assert_same(write_variant("qwen2", tmp_path / "more.gguf", keys, repeat_heads), tiny_model("qwen2"))


LATENT_KEYS = {
    "attention.head_count_kv": 1,
    "attention.key_length": 96,
    "attention.value_length": 64,
    "attention.key_length_mla": 96,
    "attention.value_length_mla": 64,
}


def split_kv_b(tensors: Tensors) -> None:
    for name in [name for name in tensors if name.endswith("attn_kv_b.weight")]:
        heads = moved(tensors, name).reshape(4, 64 + 64, 64)
        tensors[name.replace("kv_b", "k_b")] = heads[:, :64].transpose(0, 2, 1)
        tensors[name.replace("kv_b", "v_b")] = heads[:, 64:]


def in_q8_0(name_part: str) -> Callable[[Tensors], None]:
    def quantize(tensors: Tensors) -> None:
        for name in [name for name in tensors if name_part in name]:
            tensors[name] = quants.quantize(np.ascontiguousarray(tensors[name]), GGMLQuantizationType.Q8_0)

    return quantize


def through_q8_0(name_part: str) -> Callable[[Tensors], None]:
    """The float32 values that `in_q8_0` stands for."""

    def round_trip(tensors: Tensors) -> None:
        in_q8_0(name_part)(tensors)
        for name in [name for name in tensors if name_part in name]:
            tensors[name] = quants.dequantize(tensors[name], GGMLQuantizationType.Q8_0)

    return round_trip


def test_key_and_value_projections_may_be_one_tensor_or_two(tiny_model: TinyPath, tmp_path: Path) -> None:
    split = write_variant("deepseek2-legacy", tmp_path / "split.gguf", LATENT_KEYS, split_kv_b)
    assert_same(split, tiny_model("deepseek2-legacy"))


@pytest.mark.parametrize(("name", "part"), [("deepseek2-legacy", "attn_kv_b"), ("deepseek2-v3", "_b.weight")])
def test_quantized_latent_projections_compute_as_their_float32_values(name: str, part: str, tmp_path: Path) -> None:
    quantized = write_variant(name, tmp_path / "q8.gguf", change=in_q8_0(part))
    assert distance(quantized, write_variant(name, tmp_path / "f32.gguf", change=through_q8_0(part))) < 1e-5


def test_deepseek2_in_the_size_of_glm_4_7_flash_gates_by_sigmoid_where_the_file_does_not_say(tmp_path: Path) -> None:
    shape = replace(
        TINY["deepseek2-lite"],
        layers=47,
        hidden=32,
        heads=1,
        attention=TinyLatent(q_lora=0, kv_lora=32, nope=2, value=2),
        rope_dims=2,
        tied=True,
        experts=TinyExperts(4, 2, 8, gating=1, scale=1.0),
    )

    def widen(tensors: Tensors) -> None:
        tensors["token_embd.weight"] = np.resize(tensors["token_embd.weight"], (154880, 32)).astype(np.float16)

    path = write_variant(shape, tmp_path / "flash.gguf", {"expert_gating_func": None}, widen)
    unsaid, softmax, sigmoid = (
        score(load_with(path, {"expert_gating_func": gating}), [5, 6]) for gating in (None, 1, 2)
    )
    np.testing.assert_array_equal(unsaid, sigmoid)
    assert np.abs(softmax - sigmoid).max() > 1e-3


def test_glm_4_5_air_has_no_norms_on_queries_and_keys(tmp_path: Path) -> None:
    def leave_out(tensors: Tensors) -> None:
        for name in [name for name in tensors if "attn_q_norm" in name or "attn_k_norm" in name]:
            moved(tensors, name)

    path = write_variant("glm4moe", tmp_path / "air.gguf", change=leave_out)
    assert np.isfinite(score(load_model(path), PROMPT)).all()


def test_a_model_with_a_single_expert_is_a_dense_one(tmp_path: Path) -> None:
    """Mixtral's weights sum to one: with one expert, its output is the layer's."""

    def as_dense(tensors: Tensors) -> None:
        for name in [name for name in tensors if "_exps" in name]:
            tensors[name.replace("_exps", "")] = moved(tensors, name)[0]
        for name in [name for name in tensors if "ffn_gate_inp" in name]:
            moved(tensors, name)

    shape = replace(TINY["llama-moe"], experts=TinyExperts(1, 1, 64))
    one = write_variant(shape, tmp_path / "one.gguf")
    dense = write_variant(shape, tmp_path / "dense.gguf", {"expert_count": 0}, as_dense)
    assert_same(one, dense)
