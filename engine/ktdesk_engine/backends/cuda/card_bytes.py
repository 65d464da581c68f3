"""What weights take on a GPU, without torch: for plans. forms.py has how they lie there."""

from __future__ import annotations

from ktdesk_engine.quants.formats import BLOCKS, WeightType

BLOCK_BYTES = {
    **dict.fromkeys((WeightType.Q4_0, WeightType.IQ4_NL, WeightType.MXFP4), 18),
    WeightType.Q4_1: 20,
    **dict.fromkeys((WeightType.Q5_0, WeightType.Q8_0), 34),
    WeightType.Q5_1: 36,
    WeightType.Q2_K: 164,
    WeightType.Q3_K: 146,
    WeightType.Q4_K: 148,
    WeightType.Q5_K: 276,
    WeightType.Q6_K: 274,
    WeightType.IQ4_XS: 138,
    WeightType.F32: 4,
}
"""Codes of 4 or 8 bits, scales and minima apart; floats as they are. Others are two bytes a value."""
TWO_BYTES = 2


def card_bytes(weight_type: WeightType, num_values: int) -> int:
    """Of whole blocks."""
    if weight_type not in BLOCK_BYTES:
        return TWO_BYTES * num_values
    return num_values // BLOCKS[weight_type].values * BLOCK_BYTES[weight_type]
