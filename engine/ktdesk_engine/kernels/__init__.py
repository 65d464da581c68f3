"""The Python face of the extension: numpy arrays in, numpy arrays out.

Knows no model. What each function computes is written once more in `kernels.reference`, in numpy: that is
the definition of right. An operation runs on the threads and the instruction set of the pool it is given.
"""

from ktdesk_engine.kernels.arrays import CACHE_LINE, Blocks, Floats, Ids, aligned_bytes
from ktdesk_engine.kernels.operations import (
    RopePairing,
    dequantize,
    expert_mlp,
    get_rows,
    linear,
    linear_per_head,
    rms_norm,
    rope,
)
from ktdesk_engine.kernels.paged_attention import (
    CACHE_PADDING,
    AttentionRule,
    CachedRows,
    PagedContext,
    attention,
    cached_row_bytes,
    store_rows,
)
from ktdesk_engine.kernels.pools import ISA_VARIABLE, WorkerPool, default_isa, isas, using, why_no_amx, worker_pool
from ktdesk_engine.kernels.weights import (
    PANEL_ROWS,
    Activation,
    ExpertMlp,
    ExpertWeight,
    PackedShape,
    Weight,
    has_panels,
    pack,
    packed_bytes,
)

__all__ = [
    "CACHE_LINE",
    "CACHE_PADDING",
    "ISA_VARIABLE",
    "PANEL_ROWS",
    "Activation",
    "AttentionRule",
    "Blocks",
    "CachedRows",
    "ExpertMlp",
    "ExpertWeight",
    "Floats",
    "Ids",
    "PackedShape",
    "PagedContext",
    "RopePairing",
    "Weight",
    "WorkerPool",
    "aligned_bytes",
    "attention",
    "cached_row_bytes",
    "default_isa",
    "dequantize",
    "expert_mlp",
    "get_rows",
    "has_panels",
    "isas",
    "linear",
    "linear_per_head",
    "pack",
    "packed_bytes",
    "rms_norm",
    "rope",
    "store_rows",
    "using",
    "why_no_amx",
    "worker_pool",
]
