"""How fast a plan should be: an interval, and the lane that limits it.

A token's time is the sum of its lanes: what has to be read of memory, what has to be multiplied, what goes over PCIe.
The shares of the ceilings that the engine reaches are those of docs/performance.md.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ktdesk_engine.benchmark import kernel_shares
from ktdesk_engine.benchmark.kernel_shares import ATTENTION, EXPERTS, MATRIX
from ktdesk_engine.config import CacheType, Compute
from ktdesk_wizard.plan.cache import LayerCache, needed_bytes
from ktdesk_wizard.plan.ceilings import Ceilings, Range
from ktdesk_wizard.plan.model import EMBEDDING, PlannedModel, PlannedTensor
from ktdesk_wizard.plan.plan import Lane, Prediction
from ktdesk_wizard.probe.machine_facts import GpuFacts, LinkRate

MEASURE_IT = "`ktdesk probe --measure` measures it, and --what-if takes it"
DECODE_SHARE = (0.74, 0.98)
"""Of the read bandwidth, in decoding: threads wait for each other after every operation."""
TILE_DECODE_SHARE = (0.42, 0.65)
"""The same where single rows go on tiles too (bf16): unpacking for tiles is slower than memory."""
FLOAT_DECODE_SHARE = (0.010, 0.030)
"""Of the peak of bytes, in decoding in float32: each weight is unpacked for one product."""
FLOATS = ("F32", "F16", "BF16")
FEW_ROWS, FEW_ROWS_POWER = 32, 0.7
"""Of an expert on tiles: with so many rows and more unpacking its weights is no longer what takes the time; below, the
speed falls with this power of them (measured: 16 rows 0.6, 8 rows 0.37)."""
LAYER_SECONDS = (20e-6, 80e-6)
"""Of a layer's step besides its bytes: barriers between operations, norms, the choice of experts."""
CACHE_SHARE = (0.25, 0.80)
"""Of the bandwidth, in reading the cache."""
ROW_PASSES_BYTES = 240
"""Bytes a value of the hidden row that a layer moves besides products: norms, turns, sums, byte forms; float32."""
GPU_SHARE = (0.55, 0.85)
PCIE_SHARE, COPY_SHARE = (0.6, 0.9), (0.8, 1.0)
"""Of what the link is made for, and of what was measured of long copies."""
HANDOVER_SECONDS = (15e-6, 60e-6)
"""A layer's hand-over to the processor and back, besides its bytes."""
LATENT_SPEED = 1.5
"""Attention over latents by that over keys and values of heads, in operations a second: each score has more products
(measured: 4.5 G operations in 9 to 14 ms, 2.1 G in 7 to 10)."""
SHORT_DEPTH = 512
PROMPT = 512


@dataclass(frozen=True)
class GpuShare:
    """What is on a card."""

    facts: GpuFacts
    dense: tuple[PlannedTensor, ...]
    layers: tuple[LayerCache, ...]
    expert_share: float
    """Of its layers' routed experts."""
    num_moe_layers: int
    copies: LinkRate | None = None
    """Measured, perhaps of another card."""


def predict_decode(
    model: PlannedModel,
    ceilings: Ceilings,
    gpus: Iterable[GpuShare],
    depth: int,
    cache_type: CacheType,
    compute: Compute,
) -> Prediction:
    """One sequence, at this depth of context. compute: decided, not auto."""
    what = f"decode after {depth:,} tokens"
    on_gpu = tuple(gpus)
    if ceilings.read_bytes_s is None:
        return _unknown(what, "the read bandwidth of this machine's memory")
    in_memory = _layers_in_memory(model, on_gpu)
    packed = compute != "float32"
    lanes = [_memory_lane(model, ceilings.read_bytes_s, on_gpu, compute)]
    if not packed:
        if ceilings.peak_ops_s is None:
            return _unknown(what, "the peak of the arithmetic of this machine")
        lanes.append(_unpacking_lane(model, ceilings.peak_ops_s))
    lanes.append(Lane("steps", f"{len(model.layers)} layers", *(len(model.layers) * s for s in LAYER_SECONDS)))
    if depth and in_memory:
        lanes.append(_cache_lane(in_memory, ceilings.read_bytes_s, depth, cache_type))
    for share in on_gpu:
        if not share.facts.bytes_s.value:
            return _unknown(what, f"the bandwidth of card {share.facts.index}")
        lanes += [_gpu_lane(model, share, depth, cache_type, packed), _pcie_lane(model, share)]
    return _sum(what, 1, lanes, ceilings.basis)


def predict_prefill(
    model: PlannedModel, ceilings: Ceilings, chunk: int, compute: Compute, num_tokens: int = PROMPT, depth: int = 0
) -> Prediction:
    """On the processor. A prompt reads all experts that any of its tokens uses, once a chunk, beside the arithmetic.
    compute: decided, not auto."""
    what = f"prefill of {num_tokens} tokens"
    if ceilings.read_bytes_s is None or ceilings.peak_ops_s is None:
        return _unknown(what, "the bandwidth or the peak of the arithmetic of this machine")
    products = _Products(model, ceilings, ceilings.peak_ops_s, compute, num_tokens, min(chunk, num_tokens))
    computing = [
        products.lane(EXPERTS),
        products.lane(MATRIX),
        _attention_lane(products, depth),
        _rows_lane(model, ceilings.read_bytes_s, num_tokens),
    ]
    num_bytes = weight_bytes(model, products.chunk, compute != "float32") * -(-num_tokens // chunk)
    read = ceilings.read_bytes_s.times(DECODE_SHARE)
    memory = Lane("memory", f"{num_bytes / 1e9:.2f} GB of weights", *read.seconds(num_bytes))
    best = max(sum(lane.min_seconds for lane in computing), memory.min_seconds)  # side by side
    worst = sum(lane.max_seconds for lane in (*computing, memory))  # one after the other
    likely = max(sum(lane.likely_seconds for lane in computing), memory.likely_seconds)
    lanes = tuple(lane for lane in (*computing, memory) if lane.max_seconds)
    speeds = (num_tokens / likely, num_tokens / worst, num_tokens / best)
    return Prediction(what, *speeds, _limiting(lanes), lanes, ceilings.basis)


@dataclass(frozen=True)
class _Products:
    """Of the tokens of a prompt."""

    model: PlannedModel
    ceilings: Ceilings
    peak: Range
    compute: Compute
    num_tokens: int
    chunk: int
    """Of them that are computed together."""

    def lane(self, kind: str) -> Lane:
        """Of the routed experts, or of all other matrices of the layers."""
        ops = best = worst = 0.0
        for type_name, values in _active_values(self.model, kind == EXPERTS).items():
            of_type = 2.0 * self.num_tokens * values
            fast, slow = self.peak.times(self._share(kind, type_name)).seconds(of_type)
            ops, best, worst = ops + of_type, best + fast, worst + slow
        return Lane(kind, f"{ops / 1e12:.2f} T operations", best, worst)

    def _share(self, kind: str, type_name: str) -> tuple[float, float]:
        """On tiles the shares are of many rows; with few, unpacking weighs more. mixed takes what is faster."""
        share = self.ceilings.share(kind, type_name, self.compute)
        if self.compute not in ("mixed", "bf16"):
            return share
        measured_rows = kernel_shares.T * (kernel_shares.K / kernel_shares.E if kind == EXPERTS else 1)
        few = _tile_efficiency(self._rows(kind)) / _tile_efficiency(measured_rows)
        on_tiles = share[0] * few, share[1] * few
        if self.compute == "bf16":
            return on_tiles
        on_vectors = self.ceilings.share(kind, type_name)
        return max(on_tiles[0], on_vectors[0]), max(on_tiles[1], on_vectors[1])

    def _rows(self, kind: str) -> float:
        """That one matrix is multiplied with."""
        of_expert = self.model.num_used / self.model.num_experts if self.model.num_experts else 1.0
        return self.chunk * (of_expert if kind == EXPERTS else 1.0)


def _tile_efficiency(num_rows: float) -> float:
    """By that of many rows."""
    return float((min(max(num_rows, 1.0), FEW_ROWS) / FEW_ROWS) ** FEW_ROWS_POWER)


def _attention_lane(products: _Products, depth: int) -> Lane:
    """Each token with all before it: a product with the key and one with the value, for each head."""
    model, ceilings = products.model, products.ceilings
    ops = effort = 0.0
    for layer in (layer for layer in model.layers if layer.kind != "recurrent"):
        of_layer = 2.0 * model.num_heads * _looked_at(layer, products.num_tokens, depth) * _lengths(layer)
        ops += of_layer
        effort += of_layer / (LATENT_SPEED if layer.kind == "latent" else 1.0)
    seconds = products.peak.times(ceilings.share(ATTENTION, "f16", products.compute)).seconds(effort)
    return Lane("attention", f"{ops / 1e12:.2f} T operations", *seconds)


def _unpacking_lane(model: PlannedModel, peak: Range) -> Lane:
    """Of one token in float32."""
    share = model.num_used / model.num_experts if model.num_experts else 1.0
    values = sum(
        tensor.num_values * (share if tensor.is_expert else 1.0)
        for tensor in model.tensors
        if tensor.is_matrix and tensor.type_name not in FLOATS and (tensor.name != EMBEDDING or model.is_tied)
    )
    seconds = peak.times(FLOAT_DECODE_SHARE).seconds(2.0 * values)
    return Lane("unpacking", f"{values / 1e9:.2f} G weights", *seconds)


def _looked_at(layer: LayerCache, num_tokens: int, depth: int) -> float:
    """Pairs of a token and one that it sees."""
    pairs = num_tokens * (depth + (num_tokens + 1) / 2)
    return min(pairs, float(num_tokens) * layer.window) if layer.window else pairs


def _lengths(layer: LayerCache) -> int:
    """Of a key and a value. A latent is both."""
    return layer.row_lengths[0] + layer.value_length


def _rows_lane(model: PlannedModel, read: Range, num_tokens: int) -> Lane:
    num_bytes = ROW_PASSES_BYTES * num_tokens * model.hidden * len(model.layers)
    return Lane("rows", f"{num_bytes / 1e9:.2f} GB", *read.times(DECODE_SHARE).seconds(num_bytes))


def weight_bytes(model: PlannedModel, num_tokens: int, packed: bool) -> float:
    """That so many tokens read, each weight once. Experts are hit as if tokens chose evenly."""
    hit = 1 - (1 - model.num_used / model.num_experts) ** num_tokens if model.num_experts else 1.0
    total = 0.0
    for tensor in model.tensors:
        total += _read_bytes(model, tensor, packed) * (hit if tensor.is_expert else 1.0)
    return total


def _active_values(model: PlannedModel, in_experts: bool) -> dict[str, float]:
    """By type, what a token is multiplied with in the layers; the head is only for the last token of a prompt."""
    share = model.num_used / model.num_experts if in_experts and model.num_experts else 1.0
    values: dict[str, float] = {}
    for tensor in model.tensors:
        if tensor.is_matrix and tensor.layer >= 0 and tensor.is_expert == in_experts:
            values[tensor.type_name] = values.get(tensor.type_name, 0.0) + share * tensor.num_values
    return values


def _read_bytes(model: PlannedModel, tensor: PlannedTensor, packed: bool) -> float:
    if tensor.name == EMBEDDING and not model.is_tied:
        return tensor.num_bytes / max(model.vocab_size, 1)
    return tensor.memory_bytes(packed)


def _memory_lane(model: PlannedModel, read: Range, gpus: tuple[GpuShare, ...], compute: Compute) -> Lane:
    packed = compute != "float32"
    num_bytes = weight_bytes(model, 1, packed) - sum(_gpu_weight_bytes(model, share, packed) for share in gpus)
    speed = read.times(TILE_DECODE_SHARE if compute == "bf16" else DECODE_SHARE)
    return Lane("memory", f"{num_bytes / 1e9:.2f} GB of weights", num_bytes / speed.high, num_bytes / speed.low)


def _cache_lane(layers: tuple[LayerCache, ...], read: Range, depth: int, cache_type: CacheType) -> Lane:
    num_bytes = needed_bytes(layers, depth, cache_type)
    speed = read.times(CACHE_SHARE)
    return Lane("cache", f"{num_bytes / 1e9:.2f} GB", num_bytes / speed.high, num_bytes / speed.low)


def _layers_in_memory(model: PlannedModel, gpus: tuple[GpuShare, ...]) -> tuple[LayerCache, ...]:
    return model.layers[sum(len(share.layers) for share in gpus) :]


def _gpu_weight_bytes(model: PlannedModel, share: GpuShare, packed: bool) -> float:
    dense = sum(_read_bytes(model, tensor, packed) for tensor in share.dense)
    experts = sum(tensor.memory_bytes(packed) for tensor in model.tensors if tensor.is_expert)
    used = model.num_used / model.num_experts if model.num_experts else 0.0
    of_layers = share.num_moe_layers / max(len({t.layer for t in model.tensors if t.is_expert}), 1)
    return dense + experts * used * share.expert_share * of_layers


def _gpu_lane(model: PlannedModel, share: GpuShare, depth: int, cache_type: CacheType, packed: bool) -> Lane:
    num_bytes = _gpu_weight_bytes(model, share, packed) + needed_bytes(share.layers, depth, cache_type)
    assert share.facts.bytes_s.value is not None
    speed = Range(share.facts.bytes_s.value, share.facts.bytes_s.value).times(GPU_SHARE)
    name = f"card {share.facts.index}"
    return Lane(name, f"{num_bytes / 1e9:.2f} GB", num_bytes / speed.high, num_bytes / speed.low)


def _pcie_lane(model: PlannedModel, share: GpuShare) -> Lane:
    """A layer whose experts are not all on the card sends its input and gets the sum back, in float32."""
    hands_over = share.num_moe_layers if share.expert_share < 1 else 1
    num_bytes = hands_over * 2 * 4 * model.hidden
    link = share.facts.link.max_bytes_s.value or 4e9
    shares = PCIE_SHARE
    if share.copies is not None and share.copies.is_of(share.facts):
        link, shares = min(share.copies.up_bytes_s, share.copies.down_bytes_s), COPY_SHARE
    seconds = [hands_over * HANDOVER_SECONDS[i] + num_bytes / (link * shares[1 - i]) for i in (0, 1)]
    return Lane(f"PCIe {share.facts.index}", f"{hands_over} hand-overs, {num_bytes / 1e6:.2f} MB", *seconds)


def _unknown(what: str, missing: str) -> Prediction:
    return Prediction(what, None, None, None, None, (), f"unknown: {missing} is not known; {MEASURE_IT}")


def _sum(what: str, num_tokens: int, lanes: list[Lane], basis: str) -> Prediction:
    likely = sum(lane.likely_seconds for lane in lanes)
    fastest, slowest = sum(lane.min_seconds for lane in lanes), sum(lane.max_seconds for lane in lanes)
    speeds = (num_tokens / likely, num_tokens / slowest, num_tokens / fastest)
    return Prediction(what, *speeds, _limiting(lanes), tuple(lanes), basis)


def _limiting(lanes: Iterable[Lane]) -> str:
    return max(lanes, key=lambda lane: lane.min_seconds + lane.max_seconds).name
