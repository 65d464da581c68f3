"""What a family does not know is refused in one line with key and value; hostile numbers never go further."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from model_variants import Tensors, load_with, write_variant
from scoring import load_model, logits
from tiny_models import TINY

from ktdesk_engine.errors import EngineError, ModelFileError, UnsupportedError
from ktdesk_engine.gguf.file import GGUFFile
from ktdesk_engine.kv_cache import CachedSequence, KVCache
from ktdesk_engine.models.base import UNKNOWN_VARIANTS
from ktdesk_engine.models.registry import families

TinyPath = Callable[[str], Path]


@pytest.mark.parametrize("name", TINY)
@pytest.mark.parametrize("key", UNKNOWN_VARIANTS)
def test_what_no_family_computes_is_refused_unless_its_value_changes_nothing(
    name: str, key: str, tiny_model: TinyPath
) -> None:
    with pytest.raises(UnsupportedError, match=rf"'{TINY[name].arch}\.{key}' is 30\.0, which"):
        load_with(tiny_model(name), {key: 30.0})
    for harmless in UNKNOWN_VARIANTS[key]:
        load_with(tiny_model(name), {key: harmless})


@pytest.mark.parametrize("name", ["minimax-m2", "deepseek2-v3"])
@pytest.mark.parametrize(
    ("key", "value", "shown"),
    [
        ("swiglu_clamp_exp", np.array([0, 0, 7], np.float32), r"an array of 3: 0\.0, 0\.0, 7\.0"),
        ("swiglu_clamp_shexp", np.array([7, 0, 0], np.float32), r"an array of 3: 7\.0, 0\.0, 0\.0"),
        ("attention.recurrent_layers", np.array([True, False]), "an array of 2: True, False"),
        ("interleave_moe_layer_step", np.array([1, 2], np.uint32), "an array of 2: 1, 2"),
    ],
)
def test_one_layer_that_differs_is_enough(
    name: str, key: str, value: np.ndarray, shown: str, tiny_model: TinyPath
) -> None:
    with pytest.raises(UnsupportedError, match=rf"'{TINY[name].arch}\.{key}' is {shown}, which"):
        load_with(tiny_model(name), {key: value})
    load_with(tiny_model(name), {key: np.ones_like(value) if key.startswith("interleave") else np.zeros_like(value)})


def test_a_family_that_computes_a_key_reads_it_itself(tiny_model: TinyPath, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(families()["llama"], "computes", frozenset({"logit_scale"}))
    load_with(tiny_model("llama-dense"), {"logit_scale": 30.0})
    with pytest.raises(UnsupportedError, match=r"qwen2\.logit_scale"):
        load_with(tiny_model("qwen2"), {"logit_scale": 30.0})


def test_a_variant_is_refused_before_the_tensors_that_it_lacks(tmp_path: Path) -> None:
    def make_dense(tensors: Tensors) -> None:
        for name in [name for name in tensors if name.startswith("blk.1.ffn_gate_inp")]:
            del tensors[name]

    path = write_variant("qwen3moe", tmp_path / "interleaved.gguf", {"interleave_moe_layer_step": 2}, make_dense)
    with pytest.raises(UnsupportedError, match="interleave_moe_layer_step' is 2"):
        load_model(path)


@pytest.mark.parametrize(
    ("name", "changed", "shown"),
    [
        ("qwen3moe", {"expert_gating_func": 2}, r"expert_gating_func' is 2.*1 in this architecture"),
        ("gpt-oss", {"expert_gating_func": 1}, r"expert_gating_func' is 1.*3 in this architecture"),
        ("deepseek2-v3", {"expert_gating_func": 4}, r"expert_gating_func' is 4.*2 \(sigmoid\)"),
        ("deepseek2-v3", {"rope.scaling.attn_factor": 1.5}, r"attn_factor' is 1\.5"),
        ("deepseek2-v3", {"expert_group_count": 3}, r"expert_group_count' is 3.*divisors of the 16 experts"),
        ("qwen2", {"rope.scaling.type": "longrope"}, r"rope\.scaling\.type' is 'longrope'"),
        ("qwen2", {"attention.sliding_window": 64}, r"sliding_window' is 64.*full attention"),
        ("qwen3", {"rope.dimension_count": 33}, r"dimension_count' is 33.*even"),
        ("qwen3", {"attention.head_count_kv": 3}, r"head_count_kv' is 3.*divisors of the 4 heads"),
        ("gpt-oss", {"rope.freq_base_swa": 1e4}, r"freq_base_swa' is 10000\.0.*same base"),
        ("glm4moe", {"rope.dimension_sections": np.array([8, 4, 2, 2])}, r"an array of 4: 8, 4, 2, 2"),
        ("llama-dense", {"rope.scaling.factor": 0.5}, r"scaling\.factor' is 0\.5"),
        ("deepseek2-v3", {"attention.sliding_window": 64}, r"sliding_window' is 64.*full attention"),
        ("deepseek2-v3", {"attention.scale": 0.5}, r"attention\.scale' is 0\.5"),
        ("deepseek2-v3", {"expert_shared_feed_forward_length": 128}, r"length' is 128.*0 or 64"),
        ("qwen2", {"attention.head_count_kv": np.array([2, 0])}, "head_count_kv' is an array of 2: 2, 0.*every layer"),
        ("deepseek2-v3", {"attention.head_count": np.array([4, 0, 4, 4])}, "head_count' is an array of 4: 4, 0, 4, 4"),
        ("qwen2", {"attention.causal": False}, "attention.causal' is False.*knows True"),
        ("qwen2", {"use_parallel_residual": True}, "use_parallel_residual' is True.*knows False"),
        ("qwen2", {"expert_count": 8}, "expert_count' is 8.*knows 0"),
        ("qwen3", {"expert_count": 8}, "expert_count' is 8.*knows 0"),
        ("llama-moe", {"expert_shared_count": 1}, "expert_shared_count' is 1"),
        ("qwen3moe", {"expert_shared_count": 1}, "expert_shared_count' is 1"),
        ("gpt-oss", {"expert_shared_count": 1}, "expert_shared_count' is 1"),
        ("minimax-m2", {"expert_shared_count": 1}, "expert_shared_count' is 1"),
        ("qwen3moe", {"expert_shared_feed_forward_length": 64}, "expert_shared_feed_forward_length' is 64"),
        ("qwen2moe", {"leading_dense_block_count": 1}, "leading_dense_block_count' is 1"),
        ("minimax-m2", {"leading_dense_block_count": 1}, "leading_dense_block_count' is 1"),
        ("qwen3moe", {"expert_weights_norm": False}, "expert_weights_norm' is False.*True in this architecture"),
        ("qwen2moe", {"expert_weights_norm": True}, "expert_weights_norm' is True.*False in this architecture"),
    ],
)
def test_a_variant_is_refused_with_key_and_value(
    name: str, changed: Mapping[str, Any], shown: str, tiny_model: TinyPath
) -> None:
    with pytest.raises(UnsupportedError, match=rf"tiny-{name}\.gguf: .*{shown}") as caught:
        load_with(tiny_model(name), changed)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "changed", "shown"),
    [
        ("qwen2", {"attention.head_count": 0}, "head_count' is 0"),
        ("qwen2", {"attention.head_count_kv": 0}, "head_count_kv' is 0"),
        ("qwen2", {"attention.head_count_kv": np.array([0, 0])}, "head_count_kv' is an array of 2: 0, 0"),
        ("qwen2", {"attention.head_count_kv": np.array([2, 2, 2])}, "head_count_kv' is an array of 3"),
        ("qwen2", {"attention.key_length": 0}, "key_length' is 0"),
        ("qwen2", {"feed_forward_length": 0}, "feed_forward_length' is 0"),
        ("qwen2", {"block_count": 0}, "block_count' is 0"),
        ("qwen2", {"block_count": 513}, r"block_count' is 513.*1\.\.512"),
        ("qwen2", {"attention.layer_norm_rms_epsilon": float("nan")}, "rms_epsilon' is nan"),
        ("qwen2", {"rope.dimension_count": 34}, r"dimension_count' is 34.*2\.\.32"),
        ("qwen2", {"rope.freq_base": 0.0}, r"freq_base' is 0\.0"),
        ("qwen3moe", {"expert_count": 0}, "expert_count' is 0"),
        ("qwen3moe", {"expert_used_count": 17}, r"expert_used_count' is 17.*1\.\.16"),
        ("qwen3moe", {"expert_used_count": 0}, "expert_used_count' is 0"),
        ("qwen3moe", {"nextn_predict_layers": 3}, r"nextn_predict_layers' is 3.*0\.\.2"),
        ("deepseek2-v3", {"expert_used_count": 9}, r"expert_used_count' is 9.*1\.\.8"),
        ("deepseek2-v3", {"expert_group_used_count": 5}, "expert_group_used_count' is 5"),
        ("deepseek2-v3", {"leading_dense_block_count": 5}, r"leading_dense_block_count' is 5.*0\.\.4"),
        ("deepseek2-v3", {"attention.kv_lora_rank": 0}, "kv_lora_rank' is 0"),
        ("deepseek2-v3", {"attention.q_lora_rank": None}, "q_lora_rank' is missing"),
        ("deepseek2-v3", {"attention.value_length_mla": None}, "value_length_mla' is missing"),
        ("deepseek2-v3", {"rope.dimension_count": 96}, r"dimension_count' is 96.*2\.\.95"),
        ("minimax-m2", {"expert_gating_func": None}, "expert_gating_func' is missing"),
        ("gpt-oss", {"attention.sliding_window": 0}, "sliding_window' is 0"),
        (
            "gpt-oss",
            {"attention.sliding_window_pattern": np.array([True])},
            "an array of 1: True.*4 times true or false",
        ),
        ("gpt-oss", {"swiglu_clamp_exp": "x"}, "swiglu_clamp_exp' is 'x'.*a number, or true or false"),
        ("gpt-oss", {"rope.scaling.original_context_length": 0}, "original_context_length' is 0"),
    ],
)
def test_numbers_out_of_range_are_refused(
    name: str, changed: Mapping[str, Any], shown: str, tiny_model: TinyPath
) -> None:
    with pytest.raises(ModelFileError, match=rf"tiny-{name}\.gguf: .*{shown}"):
        load_with(tiny_model(name), changed)


@pytest.mark.parametrize(
    ("name", "tensor"),
    [
        ("glm4moe", "blk.1.exp_probs_b.bias"),
        ("minimax-m2", "blk.0.exp_probs_b.bias"),
        ("qwen3", "blk.1.attn_k_norm.weight"),
        ("qwen2moe", "blk.0.ffn_gate_inp_shexp.weight"),
        ("gpt-oss", "blk.0.attn_sinks.weight"),
        ("gpt-oss", "blk.0.attn_output.bias"),
        ("gpt-oss", "blk.3.ffn_up_exps.bias"),
        ("deepseek2-v3", "blk.2.attn_v_b.weight"),
    ],
)
def test_a_missing_tensor_is_named(name: str, tensor: str, tmp_path: Path) -> None:
    path = write_variant(name, tmp_path / "less.gguf", change=lambda tensors: void(tensors.pop(tensor)))
    with pytest.raises(ModelFileError, match=f"tensor '{tensor}' is missing"):
        load_model(path)


def void(_: object) -> None:
    """Of a lambda that is called for what it does."""


@pytest.mark.parametrize(
    ("name", "tensor"),
    [
        ("qwen3moe", "blk.0.ffn_up_exps.scale"),
        ("qwen3moe", "blk.0.ffn_gate_shexp.weight"),
        ("qwen3moe", "blk.3.attn_norm.weight"),
        ("deepseek2-v3", "blk.0.indexer.proj.weight"),
        ("glm4moe", "blk.1.ffn_norm.weight"),
        ("llama-dense", "rope_factors_long.weight"),
    ],
)
def test_a_tensor_that_has_no_place_is_named(name: str, tensor: str, tmp_path: Path) -> None:
    def add(tensors: Tensors) -> None:
        tensors[tensor] = np.ones(16, np.float32)

    path = write_variant(name, tmp_path / "more.gguf", change=add)
    with pytest.raises(UnsupportedError, match=f"tensor '{tensor}' has no place in the engine's"):
        load_model(path)


def test_a_tensor_of_another_shape_is_refused_with_both(tiny_model: TinyPath) -> None:
    with pytest.raises(
        ModelFileError, match=r"'blk\.0\.ffn_gate_exps\.weight' has the shape 16 x 64 x 128, .* 16 x 32"
    ):
        load_with(tiny_model("qwen3moe"), {"expert_feed_forward_length": 32})


HOSTILE: dict[type, list[Any]] = {
    int: [0, 1, 3, 2**32 - 1, 2**63, -1, "text", None, np.array([1, 2, 3])],
    float: [0.0, 1.0, -1.0, 1e-30, 1e30, 3.4e38, 1e300, float("nan"), float("inf"), "text", None],
    bool: [True, False, 1, None],
    str: ["", "none", "linear", "yarn", 5],
}

OPTIONAL_KEYS = {
    "attention.causal": True,
    "attention.recurrent_layers": 0,
    "attention.scale": 0.0,
    "attention.sliding_window": 0,
    "attention.sliding_window_pattern": 2,
    "expert_group_count": 0,
    "expert_group_used_count": 1,
    "expert_shared_feed_forward_length": 0,
    "expert_weights_norm": True,
    "nextn_predict_layers": 0,
    "rope.scaling.attn_factor": 1.0,
    "rope.scaling.factor": 1.0,
    "rope.scaling.yarn_beta_fast": 32.0,
    "rope.scaling.yarn_beta_slow": 1.0,
    "rope.scaling.yarn_log_multiplier": 0.1,
    "swiglu_clamp_exp": 0.0,
}
"""That the tiny models leave out, some or all."""


@pytest.mark.parametrize("name", TINY)
def test_any_hostile_value_of_any_key_ends_in_a_model_that_computes_or_a_clean_error(
    name: str, tiny_model: TinyPath
) -> None:
    path = tiny_model(name)
    prefix = f"{TINY[name].arch}."
    metadata = GGUFFile.open(path).metadata
    keys = {key.removeprefix(prefix): value for key, value in metadata.items() if key.startswith(prefix)}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for key, good in (OPTIONAL_KEYS | keys).items():
            for bad in HOSTILE[type(good)]:
                loads_or_refuses(path, {key: bad})


def loads_or_refuses(path: Path, metadata: Mapping[str, Any]) -> None:
    try:
        model = load_with(path, metadata)
    except EngineError as error:
        check_one_line(str(error))
    else:
        cache = KVCache(model.cache_shapes, 3)
        assert logits(model, cache, CachedSequence(), [1, 2, 3], chunk=3).shape == (3, model.vocab_size)


def check_one_line(message: str) -> None:
    assert "\n" not in message
