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
Tiles = Literal["int16", "float32"]
"""What they are multiplied as from min_tile_rows on. int16: weights and activations as two bytes each, a row of either
having one scale; float32: never on tiles."""


class Products(NamedTuple):
    """How the weights of one type are multiplied."""

    few: Vectors
    many: Tiles
    many_in_experts: Tiles = "int16"


_BYTES = Products("int8", "int16")
_FLOATS = Products("float32", "int16")

PRODUCTS: dict[WeightType, Products] = {
    **dict.fromkeys((WeightType.Q4_0, WeightType.Q4_1, WeightType.Q5_0, WeightType.Q5_1, WeightType.Q8_0), _BYTES),
    **dict.fromkeys((WeightType.Q2_K, WeightType.Q3_K, WeightType.Q4_K, WeightType.Q5_K, WeightType.Q6_K), _BYTES),
    **dict.fromkeys((WeightType.IQ4_NL, WeightType.IQ4_XS, WeightType.MXFP4), _BYTES),
    **dict.fromkeys((WeightType.F16, WeightType.BF16), _FLOATS),
    **dict.fromkeys((WeightType.IQ1_S, WeightType.IQ1_M, WeightType.IQ2_XXS, WeightType.IQ2_XS), _FLOATS),
    **dict.fromkeys((WeightType.IQ2_S, WeightType.IQ3_XXS, WeightType.IQ3_S), _FLOATS),
    **dict.fromkeys((WeightType.TQ1_0, WeightType.TQ2_0), _FLOATS),
    # Outside experts these are routers: to round them would send tokens to other experts.
    WeightType.F32: Products("float32", "float32", "int16"),
}
"""The error of a product, the norm of the difference by that of the exact result, rows of 2,048 random weights and
activations: int8 0.00007 in each type; int16 0.00006 to 0.0001; float32 0.000001. Where one activation is 300 times as
large as the others: int8 0.0007 to 0.0012, int16 0.0004 to 0.0005. With compute bf16 all is bfloat16 on tiles: 0.0016
to 0.0035, but 0.008 in Q2_K, whose random mins nearly cancel its codes."""


def decide_compute(wish: Compute, pool: WorkerPool, *, deterministic: bool = False) -> Compute:
    """auto is mixed, which takes vectors or tiles by the number of rows; both round alike (docs/quality.md).

    Without tiles, what would go on them goes on vectors; deterministic allows one of them alone.
    """
    if wish == "float32" or (wish == "bf16" and pool.has_tiles):
        return wish
    return "mixed" if wish in ("auto", "mixed") and pool.has_tiles and not deterministic else "int8"


def rounds_to_bfloat16(compute: Compute) -> bool:
    """What goes on tiles, instead of to integers of 16 bits."""
    return compute == "bf16"


MIN_TILE_QUERIES = 17
"""Tiles attend for many queries of a sequence at once, and vectors for few: turning keys and values into tiles costs
what it does for one query as for sixteen. Measured (two cores, a context of 2,048): 8 query rows to a head of keys
0.25 ms on vectors, 0.40 on tiles; 16 rows 0.45 and 0.42; 32 rows 0.99 and 0.67; one row 0.66 and 1.80."""


def min_tile_queries(compute: Compute, *, deterministic: bool = False) -> int:
    """From how many query rows to a head of keys on tiles attend. bf16 is all on tiles: how a prompt is cut changes no
    bit then."""
    if deterministic or compute not in ("mixed", "bf16"):
        return NEVER
    return 1 if compute == "bf16" else MIN_TILE_QUERIES


def fixed_min_tile_rows(compute: Compute, wish: int | None, pool: WorkerPool) -> int | None:
    """From how many rows on tiles are used; None where that is to be measured."""
    if not pool.has_tiles or compute in ("int8", "float32"):
        return NEVER
    return 1 if compute == "bf16" else wish
