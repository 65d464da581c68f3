"""The extension built from engine/csrc/module.cpp. Use `ktdesk_engine.kernels`."""

import numpy as np
import numpy.typing as npt

_Floats = npt.NDArray[np.float32]
_Ids = npt.NDArray[np.int32]
_Blocks = npt.NDArray[np.uint8]
_PackedShape = tuple[int, int] | None
_CachedRows = tuple[int, int, _Blocks]
_Context = tuple[_Ids, _Ids, _Ids]
_ExpertWeight = tuple[int, _Blocks, _PackedShape, _Floats | None, _Floats | None]

class WorkerPool:
    def __init__(self, num_threads: int, isa: str) -> None: ...
    @property
    def num_threads(self) -> int: ...
    @property
    def isa(self) -> str: ...
    @property
    def has_tiles(self) -> bool: ...
    min_tile_rows: int
    overlaps_phases: bool

def isas(with_variants: bool) -> list[str]: ...
def why_no_amx() -> str: ...
def panel_bytes(type: int, length: int) -> int: ...
def pack(pool: WorkerPool, type: int, blocks: _Blocks, panels: _Blocks) -> None: ...
def linear(
    pool: WorkerPool, type: int, weight: _Blocks, packed: _PackedShape, x: _Floats, out: _Floats, bias: _Floats | None
) -> None: ...
def linear_per_head(pool: WorkerPool, type: int, weight: _Blocks, x: _Floats, out: _Floats) -> None: ...
def get_rows(pool: WorkerPool, type: int, weight: _Blocks, ids: _Ids, out: _Floats) -> None: ...
def expert_mlp(
    pool: WorkerPool,
    gate: _ExpertWeight,
    up: _ExpertWeight,
    down: _ExpertWeight,
    activation: tuple[int, float],
    weighs_inputs: bool,
    ids: _Ids,
    weights: _Floats,
    x: _Floats,
    out: _Floats,
) -> None: ...
def store_rows(pool: WorkerPool, rows: _CachedRows, context: _Context, x: _Floats) -> None: ...
def attention(
    pool: WorkerPool,
    queries: _Floats,
    keys: _CachedRows,
    values: _CachedRows,
    context: _Context,
    out: _Floats,
    scale: float,
    window: int,
    soft_cap: float,
    sinks: _Floats | None,
) -> None: ...
def rms_norm(pool: WorkerPool, x: _Floats, weight: _Floats, epsilon: float, out: _Floats) -> None: ...
def rope(pool: WorkerPool, x: _Floats, cosines: _Floats, sines: _Floats, pairing: int) -> None: ...
def dequantize(pool: WorkerPool, type: int, blocks: _Blocks, out: _Floats) -> None: ...
def choose_experts(
    pool: WorkerPool,
    logits: _Floats,
    bias: _Floats | None,
    gating: int,
    normalize: bool,
    scale: float,
    num_groups: int,
    num_groups_used: int,
    ids: _Ids,
    weights: _Floats,
) -> None: ...
def touch(pool: WorkerPool, data: _Blocks) -> None: ...
def probe_read(pool: WorkerPool, data: _Blocks) -> tuple[float, float, float]: ...
def probe_peak(pool: WorkerPool, name: str, num_rounds: int) -> tuple[float, float, float]: ...
