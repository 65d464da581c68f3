"""Weights as kernels take them: rows as the file has them, or panels of 16 rows (csrc/panels.h)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import NamedTuple

from ktdesk_engine.kernels.arrays import Blocks, Floats
from ktdesk_engine.quants.formats import BLOCKS, WeightType


class PackedShape(NamedTuple):
    """What panels do not tell of themselves."""

    num_rows: int
    row_length: int


@dataclass(frozen=True)
class Weight:
    """Rows of weights as they lie in the file, or packed in panels of 16 rows (csrc/panels.h)."""

    type: WeightType
    blocks: Blocks
    """(rows, row_bytes), or (E, rows, row_bytes). In panels: (panels, panel_bytes), or (E, panels, panel_bytes)."""
    packed: PackedShape | None = None
    """None: rows as they lie in the file."""

    @property
    def num_rows(self) -> int:
        return self.packed.num_rows if self.packed else int(self.blocks.shape[-2])

    @property
    def row_length(self) -> int:
        """Weights in a row: the width of what it is multiplied with."""
        if self.packed:
            return self.packed.row_length
        block = BLOCKS[self.type]
        return int(self.blocks.shape[-1]) // block.bytes * block.values


@dataclass(frozen=True)
class ExpertWeight:
    """One weight of all experts: blocks (E, rows, row_bytes). Its products times the scale, plus the bias."""

    weight: Weight
    bias: Floats | None = None
    """(E, rows)"""
    scale: Floats | None = None
    """(E,)"""

    @property
    def as_tuple(self) -> tuple[int, Blocks, PackedShape | None, Floats | None, Floats | None]:
        return int(self.weight.type), self.weight.blocks, self.weight.packed, self.bias, self.scale


class Activation(IntEnum):
    """What stands between gate and up and down."""

    SWIGLU = 0
    """silu(gate) * up"""
    SWIGLU_OAI = 1
    """g = min(gate, 7), u = clamp(up, -7, 7): g * sigmoid(1.702 g) * (u + 1)"""
    CLAMPED_GATE = 2
    """g = min(gate, limit), u = clamp(up, -limit, limit): silu(g) * u"""
    CLAMPED_SILU = 3
    """min(silu(gate), limit) * clamp(up, -limit, limit)"""


@dataclass(frozen=True)
class ExpertMlp:
    """gate and up are (E, I, H), down is (E, H, I)."""

    gate: ExpertWeight
    up: ExpertWeight
    down: ExpertWeight
    activation: Activation = Activation.SWIGLU
    limit: float = 0.0
    """Of the clamped activations."""
    weighs_inputs: bool = False
    """A token is multiplied by its weight before the network, not after it."""

    @property
    def weights(self) -> list[Weight]:
        return [self.gate.weight, self.up.weight, self.down.weight]

    @property
    def num_experts(self) -> int:
        return int(self.gate.weight.blocks.shape[0])

    def with_weights(self, replaced: Callable[[Weight], Weight]) -> ExpertMlp:
        """The same with replaced(weight) for each weight."""
        gate, up, down = (replace(part, weight=replaced(part.weight)) for part in (self.gate, self.up, self.down))
        return replace(self, gate=gate, up=up, down=down)
