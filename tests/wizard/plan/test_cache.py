"""What layers keep of past tokens, against numbers that can be worked out by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ktdesk_engine.config import CACHE_TYPES, CacheType
from ktdesk_engine.gguf.hparams import Metadata
from ktdesk_wizard.plan.cache import (
    LayerCache,
    grouped_query,
    latent,
    needed_bytes,
    read_layers,
    recurrent,
)

GIB, MIB = 2**30, 2**20
COMMON = {"embedding_length": 2048, "context_length": 262144}


def layers_of(architecture: str, num_layers: int, **keys: Any) -> tuple[LayerCache, ...]:
    """As a file with these keys has them; a dot is written __."""
    values = COMMON | {"block_count": num_layers} | {name.replace("__", "."): value for name, value in keys.items()}
    arrays = {name: np.array(value) if isinstance(value, list) else value for name, value in values.items()}
    return read_layers(Metadata(Path("model.gguf"), arrays), architecture, num_layers, num_layers)


DEEPSEEK_V3 = {
    "attention__head_count": 128,
    "attention__head_count_kv": 1,
    "attention__key_length": 576,
    "attention__value_length": 512,
    "attention__kv_lora_rank": 512,
    "rope__dimension_count": 64,
}
QWEN3_30B = {
    "attention__head_count": 32,
    "attention__head_count_kv": 4,
    "attention__key_length": 128,
    "attention__value_length": 128,
}


def test_deepseek_v3_keeps_one_latent_a_layer() -> None:
    layers = layers_of("deepseek2", 61, **DEEPSEEK_V3)
    assert needed_bytes(layers, 32768, "f16") == 61 * 576 * 2 * 32768
    assert needed_bytes(layers, 32768, "f16") / GIB == pytest.approx(2.14, abs=0.005)
    assert needed_bytes(layers, 32768, "q8_0") / MIB == pytest.approx(1167, abs=0.5)


def test_an_old_file_of_deepseek_with_a_head_for_each_head_keeps_the_same_latent() -> None:
    old = DEEPSEEK_V3 | {"attention__head_count_kv": 128, "attention__key_length": 192, "attention__value_length": 128}
    assert layers_of("deepseek2", 61, **old) == layers_of("deepseek2", 61, **DEEPSEEK_V3)


def test_qwen3_30b_keeps_its_explicit_head_sizes_and_not_the_width_by_the_heads() -> None:
    layers = layers_of("qwen3moe", 48, **QWEN3_30B)
    assert needed_bytes(layers, 32768, "f16") == 3 * GIB
    assert needed_bytes(layers, 32768, "q8_0") == 1632 * MIB


def test_a_file_without_head_sizes_has_the_width_by_the_heads_and_without_kv_heads_one_for_each() -> None:
    (layer,) = layers_of("llama", 1, attention__head_count=16)
    assert layer == grouped_query(16, 128, 128)
    (layer,) = layers_of("llama", 1, attention__head_count=16, attention__head_count_kv=4)
    assert layer.num_bytes(1000, "f16") == 1000 * 4 * (128 + 128) * 2


GPT_OSS = {
    "attention__head_count": 64,
    "attention__head_count_kv": 8,
    "attention__key_length": 64,
    "attention__value_length": 64,
    "attention__sliding_window": 128,
}


def test_every_other_layer_of_gpt_oss_keeps_only_its_window() -> None:
    layers = layers_of("gpt-oss", 36, **GPT_OSS)
    token = 8 * (64 + 64) * 2
    assert [layer.kind for layer in layers[:3]] == ["sliding", "grouped-query", "sliding"]
    assert needed_bytes(layers, 32768, "f16") == 18 * token * 32768 + 18 * token * 128
    assert needed_bytes(layers, 100, "f16") == 36 * token * 100  # the window is not full yet


def test_a_pattern_of_flags_or_a_period_of_the_file_counts() -> None:
    flags = layers_of("gemma4", 4, **GPT_OSS, attention__sliding_window_pattern=[True, True, False, True])
    assert [layer.window for layer in flags] == [128, 128, 0, 128]
    period = layers_of("gpt-oss", 4, **GPT_OSS, attention__sliding_window_pattern=4)
    assert [layer.window for layer in period] == [128, 128, 128, 0]
    every = layers_of("gpt-oss", 2, **GPT_OSS, attention__sliding_window_pattern=0)
    assert [layer.window for layer in every] == [128, 128]


def test_a_window_that_nobody_is_known_to_use_is_planned_as_none() -> None:
    assert {layer.kind for layer in layers_of("mystery", 4, **GPT_OSS)} == {"grouped-query"}


QWEN3_NEXT = {
    "attention__head_count": 16,
    "attention__head_count_kv": 2,
    "attention__key_length": 256,
    "attention__value_length": 256,
    "ssm__conv_kernel": 4,
    "ssm__inner_size": 4096,
    "ssm__state_size": 128,
    "ssm__group_count": 16,
    "ssm__time_step_rank": 32,
}


def test_a_hybrid_keeps_24_kib_a_token_in_12_of_48_layers_and_a_state_in_the_others() -> None:
    layers = layers_of("qwen3next", 48, **QWEN3_NEXT)
    assert sum(layer.kind == "grouped-query" for layer in layers) == 12
    assert layers[3].kind == "grouped-query"
    state = 4 * (3 * (4096 + 2 * 16 * 128) + 128 * 4096)
    assert layers[0] == recurrent(4, 8192, 128 * 4096)
    assert needed_bytes(layers, 32768, "f16") == 24 * 1024 * 32768 + 36 * state


def test_layers_without_heads_are_the_recurrent_ones() -> None:
    keys = QWEN3_NEXT | {"attention__head_count_kv": [0, 0, 8, 0]}
    kinds = [layer.kind for layer in layers_of("granitehybrid", 4, **keys)]
    assert kinds == ["recurrent", "recurrent", "grouped-query", "recurrent"]


def test_kimis_delta_attention_has_square_states_beside_latents() -> None:
    keys = DEEPSEEK_V3 | {"attention__head_count_kv": [0, 0, 0, 1], "ssm__conv_kernel": 4, "kda__head_dim": 128}
    layers = layers_of("kimi-linear", 4, **keys)
    assert layers[3] == latent(512, 64)
    assert layers[0].state_bytes == 4 * (3 * 3 * 128 * 128 + 128 * 128 * 128)


layer_kinds = st.one_of(
    st.builds(grouped_query, st.integers(1, 16), st.sampled_from([32, 64, 96]), st.sampled_from([32, 64])),
    st.builds(grouped_query, st.integers(1, 16), st.just(64), st.just(64), st.integers(1, 300)),
    st.builds(latent, st.sampled_from([64, 512]), st.just(64)),
    st.builds(recurrent, st.integers(2, 4), st.integers(1, 100), st.integers(1, 1000)),
)


@given(st.lists(layer_kinds, min_size=1, max_size=4), st.integers(1, 5000), st.sampled_from(CACHE_TYPES))
def test_more_context_never_needs_less_and_the_engine_takes_at_least_the_need(
    layers: list[LayerCache], context: int, cache_type: CacheType
) -> None:
    need = needed_bytes(layers, context, cache_type)
    assert need <= needed_bytes(layers, context + 1, cache_type)
    for layer in layers:
        if layer.shape is not None:
            assert layer.num_bytes(context, cache_type) <= context * layer.shape.num_bytes(cache_type)
