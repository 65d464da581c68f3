"""How weights of each type are multiplied: the one place that says it.

Few rows (tokens of one expert, or of a matrix) are read from memory and multiplied on vectors; many are multiplied on
tiles, where the machine has them. `compute` chooses between these two, and `min_tile_rows` says what is many.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from ktdesk_engine.config import Compute
from ktdesk_engine.kernels import WorkerPool
from ktdesk_engine.kernels.pools import NEVER
from ktdesk_engine.quants.formats import WeightType

Vectors = Literal["int8", "float32"]
"""What rows are multiplied as on vectors. int8: weights as their codes, activations as two bytes of 15 bits."""
Tiles = Literal["bf16", "float32"]
"""What they are multiplied as from min_tile_rows on; float32: never on tiles."""


class Products(NamedTuple):
    """How the weights of one type are multiplied."""

    few: Vectors
    many: Tiles
    many_in_experts: Tiles = "bf16"


_BYTES = Products("int8", "bf16")
_FLOATS = Products("float32", "bf16")

PRODUCTS: dict[WeightType, Products] = {
    **dict.fromkeys((WeightType.Q4_0, WeightType.Q4_1, WeightType.Q5_0, WeightType.Q5_1, WeightType.Q8_0), _BYTES),
    **dict.fromkeys((WeightType.Q2_K, WeightType.Q3_K, WeightType.Q4_K, WeightType.Q5_K, WeightType.Q6_K), _BYTES),
    **dict.fromkeys((WeightType.IQ4_NL, WeightType.IQ4_XS, WeightType.MXFP4), _BYTES),
    **dict.fromkeys((WeightType.F16, WeightType.BF16), _FLOATS),
    **dict.fromkeys((WeightType.IQ1_S, WeightType.IQ1_M, WeightType.IQ2_XXS, WeightType.IQ2_XS), _FLOATS),
    **dict.fromkeys((WeightType.IQ2_S, WeightType.IQ3_XXS, WeightType.IQ3_S), _FLOATS),
    **dict.fromkeys((WeightType.TQ1_0, WeightType.TQ2_0), _FLOATS),
    # Outside experts these are routers: to round them would send tokens to other experts.
    WeightType.F32: Products("float32", "float32", "bf16"),
}
"""The error of a product, the norm of the difference by that of the exact result, rows of 2,048 random weights: int8
0.00007 in each type; bf16 0.0016 to 0.0027, but 0.008 in Q2_K, whose random mins nearly cancel its codes; float32
0.000001. Of an expert, three products: int8 0.00015, bf16 0.0042."""


def decide_compute(wish: Compute, pool: WorkerPool, *, deterministic: bool = False) -> Compute:
    """auto is int8: what tiles gain in speed they pay for in quality (docs/quality.md), so they are asked for.

    Without tiles, what would go on them goes on vectors, which round less. mixed takes now these, now those.
    """
    if wish == "auto" or (deterministic and wish == "mixed"):
        return "int8"
    return wish if pool.has_tiles or wish == "float32" else "int8"


def attends_on_tiles(compute: Compute, *, deterministic: bool = False) -> bool:
    """Tiles attend for many queries at once, and vectors for few."""
    return compute in ("mixed", "bf16") and not deterministic


def fixed_min_tile_rows(compute: Compute, wish: int | None, pool: WorkerPool) -> int | None:
    """From how many rows on tiles are used; None where that is to be measured."""
    if not pool.has_tiles or compute in ("int8", "float32"):
        return NEVER
    return 1 if compute == "bf16" else wish
