"""The names of all tensor types met in GGUF files, also of those that the engine cannot read.

`quants` has the readable ones. The others are named here, so that a refusal can say what the file holds.
"""

from __future__ import annotations

from typing import NamedTuple

from ktdesk_engine.quants.formats import BLOCKS, BlockFormat, WeightType


class ForeignType(NamedTuple):
    """A tensor type that the engine cannot read."""

    name: str
    block: BlockFormat | None = None
    """None where it is not known for certain, or where two programs gave one id to two formats."""
    advice: str = "take a file with another quantization, or a newer ktdesk"


_READABLE = frozenset(WeightType)
_REMOVED = "the format was removed from GGUF: take a newer file, or quantize the model again"
_FORK = "only ik_llama.cpp reads it: take a file that llama.cpp wrote"

_FORK_NAMES = {
    133: "Q6_0",
    134: "IQ1_BN",
    135: "IQ2_BN",
    137: "IQ2_K",
    138: "IQ3_K",
    139: "IQ4_K",
    140: "IQ5_K",
    141: "IQ6_K",
    144: "IQ4_KS",
    145: "IQ2_KS",
    146: "IQ4_KSS",
    152: "IQ5_KS",
    153: "IQ2_KT",
    154: "IQ3_KT",
    155: "IQ4_KT",
    156: "IQ3_KS",
    157: "IQ2_KL",
    158: "IQ1_KT",
}

FOREIGN_TYPES: dict[int, ForeignType] = {
    4: ForeignType("Q4_2", None, _REMOVED),
    5: ForeignType("Q4_3", None, _REMOVED),
    9: ForeignType("Q8_1"),
    15: ForeignType("Q8_K", BlockFormat(256, 292)),
    24: ForeignType("I8", BlockFormat(1, 1)),
    25: ForeignType("I16", BlockFormat(1, 2)),
    26: ForeignType("I32", BlockFormat(1, 4)),
    27: ForeignType("I64", BlockFormat(1, 8)),
    28: ForeignType("F64", BlockFormat(1, 8)),
    31: ForeignType("Q4_0_4_4", BlockFormat(32, 18), _REMOVED),
    32: ForeignType("Q4_0_4_8", BlockFormat(32, 18), _REMOVED),
    33: ForeignType("Q4_0_8_8", BlockFormat(32, 18), _REMOVED),
    36: ForeignType("IQ4_NL_4_4", None, _REMOVED),
    37: ForeignType("IQ4_NL_4_8", None, _REMOVED),
    38: ForeignType("IQ4_NL_8_8", None, _REMOVED),
    40: ForeignType("NVFP4", BlockFormat(64, 36)),
    41: ForeignType("Q1_0", BlockFormat(128, 18)),
    42: ForeignType("Q2_0"),
} | {type_id: ForeignType(name, None, _FORK) for type_id, name in _FORK_NAMES.items()}


def is_readable(type_id: int) -> bool:
    """Whether the engine can compute with this type."""
    return type_id in _READABLE


def foreign_type(type_id: int) -> ForeignType:
    """What is known of a type that the engine cannot read; a type nobody knows is named by its id."""
    return FOREIGN_TYPES.get(type_id, ForeignType(f"type {type_id}"))


def type_name(type_id: int) -> str:
    """The usual spelling, as in Q4_K."""
    return WeightType(type_id).name if is_readable(type_id) else foreign_type(type_id).name


def block_format(type_id: int) -> BlockFormat | None:
    """Size of a block; None where it is not known."""
    return BLOCKS[WeightType(type_id)] if is_readable(type_id) else foreign_type(type_id).block
