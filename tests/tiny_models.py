"""Small random float32 models, one per architecture, every odd feature of it on.

Written with the independent `gguf` package. The bytes are the same on every machine: SHA256 has their sums,
and the golden numbers of tests/data/golden were computed from them by another engine.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from gguf import GGUFWriter
from tiny_shapes import SHA256, TINY, TinyExperts, TinyHeads, TinyLatent, TinyModel

__all__ = ["SHA256", "TINY", "TinyExperts", "TinyLatent", "TinyModel", "write_model", "write_tiny"]

MERGES = ["t h", "th e", "i n", "e r", "a n", "Ġ t", "Ġ a", "Ġt he"]


def write_tiny(name: str, path: Path) -> None:
    """The model TINY[name], as the golden numbers know it."""
    write_model(TINY[name], path, name, seed=sum(name.encode()))


def write_model(
    model: TinyModel,
    path: Path,
    name: str,
    seed: int,
    edit: Callable[[GGUFWriter], None] = lambda writer: None,
) -> None:
    """`edit` may change metadata and tensors before they are written."""
    writer = GGUFWriter(path, model.arch)
    writer.add_name(f"tiny {name}")
    vocab_size = _write_vocabulary(writer)
    _write_sizes(writer, model)
    _write_expert_keys(writer, model)
    _write_rope_scaling(writer, model)
    _write_attention_keys(writer, model)
    _Tensors(writer, seed).write(model, vocab_size)
    edit(writer)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def byte_level_alphabet() -> list[str]:
    """The 256 printable characters that stand for bytes in a GPT-2 style vocabulary, by byte value."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    spare = iter(range(256, 512))
    return [chr(byte if byte in printable else next(spare)) for byte in range(256)]


def _write_vocabulary(writer: GGUFWriter) -> int:
    """Bytes, eight merges, and two control tokens. Returns its size."""
    tokens = [*byte_level_alphabet(), *(merge.replace(" ", "") for merge in MERGES), "<|bos|>", "<|eos|>"]
    bos, eos = len(tokens) - 2, len(tokens) - 1
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types([1] * bos + [3, 3])
    writer.add_token_merges(MERGES)
    writer.add_bos_token_id(bos)
    writer.add_eos_token_id(eos)
    writer.add_add_bos_token(False)
    writer.add_vocab_size(len(tokens))
    return len(tokens)


def _write_sizes(writer: GGUFWriter, model: TinyModel) -> None:
    writer.add_context_length(512)
    writer.add_embedding_length(model.hidden)
    writer.add_block_count(model.layers)
    writer.add_head_count(model.heads)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_freq_base(model.rope_base)
    writer.add_feed_forward_length(model.width)


def _write_expert_keys(writer: GGUFWriter, model: TinyModel) -> None:
    experts = model.experts
    if experts is None:
        return
    writer.add_expert_count(experts.count)
    writer.add_expert_used_count(experts.used)
    writer.add_expert_feed_forward_length(experts.width)
    if experts.shared_count is not None:
        writer.add_expert_shared_count(experts.shared_count)
    if experts.shared_width is not None:
        writer.add_expert_shared_feed_forward_length(experts.shared_width)
    if experts.gating is not None:
        writer.add_uint32(f"{model.arch}.expert_gating_func", experts.gating)
    if experts.scale is not None:
        writer.add_expert_weights_scale(experts.scale)
        writer.add_expert_weights_norm(experts.normalize)
    if model.dense_layers is not None:
        writer.add_leading_dense_block_count(model.dense_layers)
    if experts.groups is not None:
        writer.add_expert_group_count(experts.groups)
        writer.add_expert_group_used_count(experts.groups_used)


def _write_rope_scaling(writer: GGUFWriter, model: TinyModel) -> None:
    if isinstance(model.attention, TinyHeads) and model.attention.window is not None:
        writer.add_sliding_window(model.attention.window)
    if model.yarn is None:
        return
    writer.add_string(f"{model.arch}.rope.scaling.type", "yarn")
    writer.add_rope_scaling_factor(model.yarn.factor)
    writer.add_rope_scaling_orig_ctx_len(model.yarn.original_context)
    if model.yarn.log_multiplier is not None:
        writer.add_float32(f"{model.arch}.rope.scaling.yarn_log_multiplier", model.yarn.log_multiplier)


def _write_attention_keys(writer: GGUFWriter, model: TinyModel) -> None:
    attention = model.attention
    if isinstance(attention, TinyHeads):
        writer.add_head_count_kv(attention.kv)
        writer.add_key_length(attention.length)
        writer.add_value_length(attention.length)
        writer.add_rope_dimension_count(model.rope_dims)
        return
    if attention.legacy:
        writer.add_head_count_kv(model.heads)
        writer.add_key_length(attention.nope + model.rope_dims)
        writer.add_value_length(attention.value)
    else:
        writer.add_head_count_kv(1)
        writer.add_key_length(attention.kv_lora + model.rope_dims)
        writer.add_value_length(attention.kv_lora)
        writer.add_key_length_mla(attention.nope + model.rope_dims)
        writer.add_value_length_mla(attention.value)
    writer.add_kv_lora_rank(attention.kv_lora)
    writer.add_rope_dimension_count(model.rope_dims)
    if attention.q_lora:
        writer.add_q_lora_rank(attention.q_lora)


class _Tensors:
    """Draws the tensors one after the other: their order decides the bytes."""

    def __init__(self, writer: GGUFWriter, seed: int) -> None:
        self._writer = writer
        self._rng = np.random.default_rng(seed)

    def write(self, model: TinyModel, vocab_size: int) -> None:
        self._random("token_embd.weight", model.hidden, vocab_size, amplitude=1.0)
        if not model.tied:
            self._random("output.weight", model.hidden, vocab_size)
        self._norm("output_norm", model.hidden)
        for layer in range(model.layers):
            self._layer(model, layer)

    def _random(self, name: str, *shape: int, amplitude: float | None = None) -> None:
        """`shape` as GGUF has it, the length of a row first."""
        values = self._rng.standard_normal(list(reversed(shape)))
        values = values * (shape[0] ** -0.5 if amplitude is None else amplitude)
        self._writer.add_tensor(name, values.astype(np.float32))

    def _norm(self, name: str, length: int) -> None:
        values = 1 + 0.2 * self._rng.standard_normal(length)
        self._writer.add_tensor(f"{name}.weight", values.astype(np.float32))

    def _layer(self, model: TinyModel, layer: int) -> None:
        block = f"blk.{layer}."
        self._norm(f"{block}attn_norm", model.hidden)
        self._norm(block + model.ffn_norm, model.hidden)
        if isinstance(model.attention, TinyHeads):
            self._heads(block, model, model.attention)
        else:
            self._latent(block, model, model.attention)
        if model.experts is None or layer < (model.dense_layers or 0):
            self._feed_forward(block, "", model.hidden, model.width)
        else:
            self._experts(block, model.hidden, model.experts)

    def _heads(self, block: str, model: TinyModel, a: TinyHeads) -> None:
        query, key = model.heads * a.length, a.kv * a.length
        for name, num_rows in (("attn_q", query), ("attn_k", key), ("attn_v", key)):
            self._random(f"{block}{name}.weight", model.hidden, num_rows)
            if a.bias:
                self._random(f"{block}{name}.bias", num_rows, amplitude=0.1)
        self._random(f"{block}attn_output.weight", query, model.hidden)
        if a.output_bias:
            self._random(f"{block}attn_output.bias", model.hidden, amplitude=0.1)
        if a.sinks:
            self._random(f"{block}attn_sinks.weight", model.heads, amplitude=1.0)
        if a.norm is not None:
            self._norm(f"{block}attn_q_norm", query if a.norm == "all" else a.length)
            self._norm(f"{block}attn_k_norm", key if a.norm == "all" else a.length)

    def _latent(self, block: str, model: TinyModel, a: TinyLatent) -> None:
        H, head = model.heads, a.nope + model.rope_dims
        if a.q_lora:
            self._random(f"{block}attn_q_a.weight", model.hidden, a.q_lora)
            self._norm(f"{block}attn_q_a_norm", a.q_lora)
            self._random(f"{block}attn_q_b.weight", a.q_lora, H * head)
        else:
            self._random(f"{block}attn_q.weight", model.hidden, H * head)
        self._random(f"{block}attn_kv_a_mqa.weight", model.hidden, a.kv_lora + model.rope_dims)
        self._norm(f"{block}attn_kv_a_norm", a.kv_lora)
        if a.legacy:
            self._random(f"{block}attn_kv_b.weight", a.kv_lora, H * (a.nope + a.value))
        else:
            self._random(f"{block}attn_k_b.weight", a.nope, a.kv_lora, H)
            self._random(f"{block}attn_v_b.weight", a.kv_lora, a.value, H)
        self._random(f"{block}attn_output.weight", H * a.value, model.hidden)

    def _feed_forward(self, block: str, suffix: str, hidden: int, width: int) -> None:
        self._random(f"{block}ffn_gate{suffix}.weight", hidden, width)
        self._random(f"{block}ffn_up{suffix}.weight", hidden, width)
        self._random(f"{block}ffn_down{suffix}.weight", width, hidden)

    def _experts(self, block: str, hidden: int, e: TinyExperts) -> None:
        self._random(f"{block}ffn_gate_inp.weight", hidden, e.count)
        if e.router_bias:
            self._random(f"{block}ffn_gate_inp.bias", e.count, amplitude=0.5)
        if e.selection_bias:
            self._random(f"{block}exp_probs_b.bias", e.count, amplitude=0.1)
        shapes: Sequence[tuple[str, int, int, float]] = (
            ("ffn_gate_exps", hidden, e.width, e.amplitude),
            ("ffn_up_exps", hidden, e.width, e.amplitude),
            ("ffn_down_exps", e.width, hidden, 1.0),
        )
        for name, length, num_rows, amplitude in shapes:
            self._random(f"{block}{name}.weight", length, num_rows, e.count, amplitude=amplitude * length**-0.5)
        for name, _, num_rows, _ in shapes:
            if e.bias:
                self._random(f"{block}{name}.bias", num_rows, e.count, amplitude=0.1)
        if e.shared_length:
            self._feed_forward(block, "_shexp", hidden, e.shared_length)
        if e.shared_gate:
            self._random(f"{block}ffn_gate_inp_shexp.weight", hidden)
