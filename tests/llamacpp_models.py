"""Small models that ktdesk's own engine does not know, for llama.cpp."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
from gguf import GGUFWriter
from tiny_models import MERGES, TINY, byte_level_alphabet, write_model


def write_gemma(path: Path, edit: Callable[[GGUFWriter], None] = lambda writer: None) -> Path:
    """A dense model of an architecture that is not in our list."""
    model = replace(TINY["llama-tied"], arch="gemma")
    write_model(model, path, "gemma", seed=7, edit=edit)
    return path


def write_mamba(path: Path) -> Path:
    """A model without attention: a state that every token changes."""
    hidden, inner, state, rank, kernel = 32, 64, 8, 4, 4
    writer = GGUFWriter(path, "mamba")
    tokens = [*byte_level_alphabet(), *(merge.replace(" ", "") for merge in MERGES), "<|bos|>", "<|eos|>"]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types([1] * (len(tokens) - 2) + [3, 3])
    writer.add_token_merges(MERGES)
    writer.add_eos_token_id(len(tokens) - 1)
    writer.add_context_length(1 << 20)
    writer.add_embedding_length(hidden)
    writer.add_feed_forward_length(0)
    writer.add_head_count(0)
    writer.add_block_count(2)
    writer.add_ssm_conv_kernel(kernel)
    writer.add_ssm_inner_size(inner)
    writer.add_ssm_state_size(state)
    writer.add_ssm_time_step_rank(rank)
    writer.add_layer_norm_rms_eps(1e-5)
    chance = np.random.default_rng(5)

    def add(name: str, *shape: int) -> None:
        values = chance.standard_normal(shape[::-1]) * shape[0] ** -0.5
        writer.add_tensor(name, values.astype(np.float32))

    def ones(name: str, length: int) -> None:
        writer.add_tensor(name, np.ones(length, np.float32))

    add("token_embd.weight", hidden, len(tokens))
    ones("output_norm.weight", hidden)
    for layer in range(2):
        block = f"blk.{layer}."
        ones(f"{block}attn_norm.weight", hidden)
        add(f"{block}ssm_in.weight", hidden, 2 * inner)
        add(f"{block}ssm_conv1d.weight", kernel, inner)
        add(f"{block}ssm_conv1d.bias", inner)
        add(f"{block}ssm_x.weight", inner, rank + 2 * state)
        add(f"{block}ssm_dt.weight", rank, inner)
        add(f"{block}ssm_dt.bias", inner)
        writer.add_tensor(f"{block}ssm_a", -np.exp(chance.standard_normal((inner, state))).astype(np.float32))
        ones(f"{block}ssm_d", inner)
        add(f"{block}ssm_out.weight", inner, hidden)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
