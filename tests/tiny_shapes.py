"""The numbers of the tiny models: one per architecture and more, every odd feature of each on.

SHA256 has the sums of the files that `tiny_models` writes of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple


class TinyYarn(NamedTuple):
    factor: float
    original_context: int
    log_multiplier: float | None


@dataclass(frozen=True)
class TinyExperts:
    count: int
    used: int
    width: int
    shared_count: int | None = None
    shared_width: int | None = None
    """Set where the file says it; else it is shared_count * width."""
    shared_gate: bool = False
    gating: int | None = None
    scale: float | None = None
    """Written together with `normalize`."""
    normalize: bool = False
    groups: int | None = None
    groups_used: int | None = None
    selection_bias: bool = False
    router_bias: bool = False
    bias: bool = False
    amplitude: float = 1.0
    """Of gate and up: large where a clamp must bite."""

    @property
    def shared_length(self) -> int:
        return self.shared_width or (self.shared_count or 0) * self.width


@dataclass(frozen=True)
class TinyHeads:
    """Grouped-query attention."""

    kv: int
    length: int
    bias: bool = False
    output_bias: bool = False
    norm: Literal["head", "all"] | None = None
    sinks: bool = False
    window: int | None = None


@dataclass(frozen=True)
class TinyLatent:
    """Multi-head latent attention."""

    q_lora: int
    """0: queries come from one matrix."""
    kv_lora: int
    nope: int
    value: int
    legacy: bool = False
    """One `attn_kv_b` instead of `attn_k_b` and `attn_v_b`."""


@dataclass(frozen=True)
class TinyModel:
    arch: str
    layers: int
    hidden: int
    heads: int
    attention: TinyHeads | TinyLatent
    rope_base: float
    rope_dims: int
    width: int
    """Of the dense feed-forward network."""
    experts: TinyExperts | None = None
    dense_layers: int | None = None
    """How many first layers have no experts."""
    tied: bool = False
    ffn_norm: str = "ffn_norm"
    yarn: TinyYarn | None = None


# fmt: off
TINY: dict[str, TinyModel] = {
    "llama-dense": TinyModel("llama", 2, 128, 4, TinyHeads(2, 32), 1e4, 32, 192),
    "llama-tied": TinyModel("llama", 2, 128, 4, TinyHeads(4, 32), 5e5, 32, 192, tied=True),
    "qwen2": TinyModel("qwen2", 2, 128, 4, TinyHeads(2, 32, bias=True), 1e6, 32, 192),
    "qwen3": TinyModel("qwen3", 2, 128, 4, TinyHeads(2, 64, norm="head"), 1e6, 64, 192, tied=True),
    "llama-moe": TinyModel("llama", 3, 128, 4, TinyHeads(2, 32), 1e6, 32, 64, TinyExperts(8, 2, 64)),
    "qwen2moe": TinyModel(
        "qwen2moe", 3, 128, 4, TinyHeads(2, 32, bias=True), 1e6, 32, 64,
        TinyExperts(8, 4, 64, shared_width=128, shared_gate=True),
    ),
    "qwen3moe": TinyModel(
        "qwen3moe", 3, 128, 4, TinyHeads(2, 64, norm="head"), 1e6, 64, 64, TinyExperts(16, 4, 64)
    ),
    "deepseek2-lite": TinyModel(
        "deepseek2", 26, 64, 2, TinyLatent(q_lora=0, kv_lora=64, nope=32, value=32), 1e4, 32, 96,
        TinyExperts(8, 3, 32, shared_count=2, gating=1, scale=1.0),
        dense_layers=1, yarn=TinyYarn(40.0, 4096, 0.0707),
    ),
    "deepseek2-v3": TinyModel(
        "deepseek2", 4, 128, 4, TinyLatent(q_lora=96, kv_lora=64, nope=64, value=64), 1e4, 32, 192,
        TinyExperts(
            16, 4, 64, shared_count=1, gating=2, scale=2.5, normalize=True, groups=4, groups_used=2,
            selection_bias=True,
        ),
        dense_layers=1, yarn=TinyYarn(40.0, 4096, 0.1),
    ),
    "deepseek2-legacy": TinyModel(
        "deepseek2", 3, 128, 4, TinyLatent(q_lora=96, kv_lora=64, nope=64, value=64, legacy=True), 1e4, 32,
        192, TinyExperts(8, 2, 64, shared_count=1, gating=1, scale=16.0), dense_layers=1,
    ),
    "glm4moe": TinyModel(
        "glm4moe", 3, 128, 4, TinyHeads(2, 64, bias=True, norm="head"), 1e6, 32, 192,
        TinyExperts(8, 2, 64, shared_count=1, gating=2, scale=1.5, normalize=True, selection_bias=True),
        dense_layers=1, ffn_norm="post_attention_norm",
    ),
    "gpt-oss": TinyModel(
        "gpt-oss", 4, 128, 4, TinyHeads(2, 64, bias=True, output_bias=True, sinks=True, window=16), 150000.0,
        64, 64, TinyExperts(8, 4, 64, router_bias=True, bias=True, amplitude=6.0),
        ffn_norm="post_attention_norm", yarn=TinyYarn(32.0, 4096, None),
    ),
    "minimax-m2": TinyModel(
        "minimax-m2", 3, 128, 4, TinyHeads(2, 64, norm="all"), 5e6, 32, 64,
        TinyExperts(16, 4, 64, gating=2, selection_bias=True),
    ),
}
# fmt: on

SHA256 = {
    "deepseek2-legacy": "706f15bd31c54cb26005a4438bc73a4c5103eb2ee5938012db369aca7806a649",
    "deepseek2-lite": "1c4689dfef4b31280d659fb10df8380f73bc6debc92454c3a8099593ed218aee",
    "deepseek2-v3": "b7a40428667fa068ceeea05b59eca20a832c924e64583953872003ff8678235d",
    "glm4moe": "821795fb4159b30e2055536e4801921f08627bf8e8fbd1c9a7b54efe83235020",
    "gpt-oss": "ad5b9bc83cd6de3f23698c53ff7354879fc92b8dea1064e4ee943fac9a63b468",
    "llama-dense": "815f3b425990b06e4c29f5b16a513752b74b82c5f6d7b50073938afd8d7639da",
    "llama-moe": "4d27ac77d44471ddfc0b3535865ed064f8e7decf07aa41a078665083dfa9e3b9",
    "llama-tied": "88f30128323e89e53b80cc5221f6d03b9ffcf11517e70bf04bfe3420fe048ad8",
    "minimax-m2": "92593589c625c724a74891a708c671ede18bd25fcd9aa3edc0d575f5419b8f85",
    "qwen2": "7c68084933b8903716c05e29acc1393c6a734f927814c26aebbe7c9f103b7883",
    "qwen2moe": "86b430add79c4ca94dbcba0a4ebfcf801d3b330b3e77f22c5243d12e4f03e56e",
    "qwen3": "bfce627b845c5d3683a862ea92ac931aebd5adb1bfca48ab9a4553fc768ab6d8",
    "qwen3moe": "a104f0e67ea4c79b417240fd545913106e471f62371418d19019431a5048c460",
}
