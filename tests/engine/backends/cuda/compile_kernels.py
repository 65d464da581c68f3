"""Compiles each kernel for a GPU that need not be there: a script, since the tests' own process interprets them."""

from __future__ import annotations

from typing import Any

import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, compile

from ktdesk_engine.backends.cuda import attention_kernels, layer_kernels, quantized_kernels

AMPERE = GPUTarget("cuda", 80, 32)
POINTERS = {
    "*u8": ["codes"],
    "*i8": ["fine", "fine_min", "key_codes", "value_codes"],
    "*fp16": ["coarse", "coarse_min", "values", "key_halves", "value_halves"],
    "*i32": ["matrix_ids", "row_ids", "page_tables", "sequences", "positions", "ids"],
}
FLOATS = ["epsilon", "scale", "soft_cap", "limit", "smallest_sum"]
FLOAT_POINTERS = [
    "levels", "x", "factors", "bias", "out", "queries", "mixed", "largest_and_sum", "sinks", "weight", "weights",
    "cosines", "sines", "gate", "up", "logits", "selection_bias",
]  # fmt: skip
TYPES = {name: kind for kind, names in POINTERS.items() for name in names}
TYPES |= dict.fromkeys(FLOATS, "fp32") | dict.fromkeys(FLOAT_POINTERS, "*fp32")
"""Of parameters by name; the others are numbers."""

QUANTIZED: dict[str, Any] = {
    "BITS": 4, "GROUP": 32, "VALUES_PER_COARSE": 256, "ZERO": 0, "HAS_LEVELS": False, "HAS_FINE": True, "HAS_MIN": True,
}  # fmt: skip
EXTRAS: dict[str, Any] = {"HAS_IDS": True, "HAS_FACTORS": True, "HAS_BIAS": True}
ATTENTION: dict[str, Any] = {
    "PAGE_SIZE": 64, "NUM_PARTS": 16, "BLOCK_HEADS": 16, "FIRST": 128, "REST": 64, "BLOCK_VALUE": 128,
    "TYPE": tl.float16, "IS_Q8_0": False, "VALUES_IN_KEYS": True, "HAS_SOFT_CAP": False, "PRECISION": "ieee",
}  # fmt: skip
ROUTING: dict[str, Any] = {
    "HAS_BIAS": True, "SIGMOID": True, "SOFTMAX": False, "NORMALIZE": True, "GROUPED": True, "BLOCK_EXPERTS": 256,
    "BLOCK_USED": 8, "BLOCK_GROUPS": 8,
}  # fmt: skip
KERNELS: list[tuple[Any, dict[str, Any]]] = [
    (quantized_kernels.product_kernel, QUANTIZED | EXTRAS | {"TOKENS": 2, "BLOCK_ROWS": 4, "BLOCK_RUNS": 32}),
    (quantized_kernels.plain_product_kernel, EXTRAS | {"TOKENS": 1, "BLOCK_ROWS": 4, "BLOCK_VALUES": 256}),
    (quantized_kernels.unpack_kernel, QUANTIZED | {"BLOCK_RUNS": 32}),
    (attention_kernels.part_kernel, ATTENTION),
    (attention_kernels.join_kernel, {"NUM_PARTS": 16, "BLOCK_VALUE": 128, "HAS_SINKS": True}),
    (layer_kernels.rms_norm_kernel, {"BLOCK": 2048}),
    (layer_kernels.rope_kernel, {"NEIGHBOURS": True, "BLOCK": 64}),
    (
        layer_kernels.activation_kernel,
        {"SWIGLU": 0, "SWIGLU_OAI": 1, "CLAMPED_GATE": 2, "KIND": 1, "BLOCK": 1024},
    ),
    (layer_kernels.routing_kernel, ROUTING),
]

for kernel, constants in KERNELS:
    signature = {name: "constexpr" if name in constants else TYPES.get(name, "i32") for name in kernel.arg_names}
    compiled = compile(ASTSource(kernel, signature, constants), target=AMPERE)
    print(kernel.__name__, len(compiled.asm["cubin"]))
