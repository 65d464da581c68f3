"""How fast a plan should be: an interval, and the lane that limits it.

A token's time is the sum of its lanes: what has to be read of memory, what has to be multiplied, what goes over PCIe.
The shares of the ceilings that the engine reaches are those of docs/performance.md.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ktdesk_engine.config import CacheType
from ktdesk_wizard.plan.cache import LayerCache, needed_bytes
from ktdesk_wizard.plan.model import EMBEDDING, PlannedModel, PlannedTensor
from ktdesk_wizard.plan.plan import Lane, Prediction
from ktdesk_wizard.probe.machine_facts import GpuFacts, MachineFacts

DECODE_SHARE = (0.65, 0.90)
"""Of the read bandwidth, in decoding."""
CACHE_SHARE = (0.25, 0.80)
"""Of it, in reading the cache."""
PREFILL_SHARE = {"avx512": (0.22, 0.45), "avx2": (0.18, 0.40), "scalar": (0.3, 0.9)}
"""Of the peak of the arithmetic, in prefill."""
OPS_PER_CYCLE = {"avx512": 224.0, "avx512 without VNNI": 110.0, "avx2": 105.0, "scalar": 10.0}
"""A core, two a product: measured on one processor, at its base clock."""
LOOKED_UP = (0.6, 1.2)
"""How far a looked-up peak may be off: clocks under load, ports that differ."""
NOMINAL_SHARE = (0.60, 0.90)
"""Of the nominal bandwidth of the modules, what all cores together can read."""
GPU_SHARE = (0.55, 0.85)
PCIE_SHARE = (0.6, 0.9)
HANDOVER_SECONDS = (15e-6, 60e-6)
"""A layer's hand-over to the processor and back, besides its bytes."""
SHORT_DEPTH = 512
PROMPT = 512


@dataclass(frozen=True)
class Range:
    low: float
    high: float

    def times(self, share: tuple[float, float]) -> Range:
        return Range(self.low * share[0], self.high * share[1])


@dataclass(frozen=True)
class Ceilings:
    """Of a machine, for a plan."""

    read_bytes_s: Range | None
    peak_ops_s: Range | None
    isa: str
    """Of the vectors."""
    basis: str


@dataclass(frozen=True)
class GpuShare:
    """What is on a card."""

    facts: GpuFacts
    dense: tuple[PlannedTensor, ...]
    layers: tuple[LayerCache, ...]
    expert_share: float
    """Of its layers' routed experts."""
    num_moe_layers: int


def ceilings_of(facts: MachineFacts, num_threads: int) -> Ceilings:
    """Measured where they were measured, else from what is printed on the parts, else unknown."""
    read, read_basis = _read(facts)
    isa = _vector_isa(facts)
    peak, peak_basis = _peak(facts, isa, num_threads)
    return Ceilings(read, peak, isa, f"bandwidth {read_basis}, arithmetic {peak_basis}")


def _read(facts: MachineFacts) -> tuple[Range | None, str]:
    memory = facts.memory
    if memory.read_bytes_s.value:
        return Range(memory.read_bytes_s.value, memory.read_bytes_s.value), memory.read_bytes_s.confidence
    if memory.nominal_bytes_s.value:
        nominal = Range(memory.nominal_bytes_s.value, memory.nominal_bytes_s.value)
        return nominal.times(NOMINAL_SHARE), "looked up (modules)"
    of_nodes = [node.read_bytes_s.value for node in facts.numa.nodes if node.num_cores]
    known = [speed for speed in of_nodes if speed]
    if known and len(known) == len(of_nodes):
        return Range(sum(known), sum(known)).times(NOMINAL_SHARE), "looked up (firmware)"
    return None, "unknown"


def _vector_isa(facts: MachineFacts) -> str:
    """What is not asked for on tiles is multiplied on vectors (compute auto)."""
    isa = facts.cpu.isa.value or "scalar"
    return "avx512" if isa == "amx" else isa


def _peak(facts: MachineFacts, isa: str, num_threads: int) -> tuple[Range | None, str]:
    cpu = facts.cpu
    if cpu.peak_ops_s.value:
        return Range(cpu.peak_ops_s.value, cpu.peak_ops_s.value), cpu.peak_ops_s.confidence
    if not cpu.max_hz.value or not cpu.isa.value:
        return None, "unknown"
    if isa == "avx512" and "avx512_vnni" not in (cpu.flags.value or ()):
        isa = "avx512 without VNNI"
    ops = OPS_PER_CYCLE[isa] * cpu.max_hz.value * num_threads
    return Range(ops, ops).times(LOOKED_UP), "looked up (instruction set, clock)"


def predict_decode(
    model: PlannedModel, ceilings: Ceilings, gpus: Iterable[GpuShare], depth: int, cache_type: CacheType, packed: bool
) -> Prediction:
    """One sequence, at this depth of context."""
    what = f"decode after {depth:,} tokens"
    on_gpu = tuple(gpus)
    if ceilings.read_bytes_s is None:
        return _unknown(what, "the read bandwidth of this machine's memory")
    lanes = [_memory_lane(model, ceilings.read_bytes_s, on_gpu, packed)]
    in_memory = _layers_in_memory(model, on_gpu)
    if depth and in_memory:
        lanes.append(_cache_lane(in_memory, ceilings.read_bytes_s, depth, cache_type))
    for share in on_gpu:
        if not share.facts.bytes_s.value:
            return _unknown(what, f"the bandwidth of card {share.facts.index}")
        lanes += [_gpu_lane(model, share, depth, cache_type, packed), _pcie_lane(model, share)]
    return _sum(what, 1, lanes, ceilings.basis)


def predict_prefill(model: PlannedModel, ceilings: Ceilings, chunk: int, packed: bool) -> Prediction:
    """On the processor. A prompt reads all experts that any of its tokens uses, once a chunk."""
    what = f"prefill of {PROMPT} tokens"
    if ceilings.read_bytes_s is None or ceilings.peak_ops_s is None:
        return _unknown(what, "the bandwidth or the peak of the arithmetic of this machine")
    ops = 2 * PROMPT * active_values(model)
    peak = ceilings.peak_ops_s.times(PREFILL_SHARE[ceilings.isa])
    num_bytes = weight_bytes(model, min(chunk, PROMPT), packed) * -(-PROMPT // chunk)
    read = ceilings.read_bytes_s.times(DECODE_SHARE)
    lanes = [
        Lane("arithmetic", f"{ops / 1e12:.2f} T operations", ops / peak.high, ops / peak.low),
        Lane("memory", f"{num_bytes / 1e9:.2f} GB of weights", num_bytes / read.high, num_bytes / read.low),
    ]
    best = max(lane.min_seconds for lane in lanes)  # side by side at best, one after the other at worst
    worst = sum(lane.max_seconds for lane in lanes)
    return Prediction(what, PROMPT / worst, PROMPT / best, _limiting(lanes), tuple(lanes), ceilings.basis)


def weight_bytes(model: PlannedModel, num_tokens: int, packed: bool) -> float:
    """That so many tokens read, each weight once. Experts are hit as if tokens chose evenly."""
    hit = 1 - (1 - model.num_used / model.num_experts) ** num_tokens if model.num_experts else 1.0
    total = 0.0
    for tensor in model.tensors:
        total += _read_bytes(model, tensor, packed) * (hit if tensor.is_expert else 1.0)
    return total


def active_values(model: PlannedModel) -> float:
    """That a token is multiplied with in the layers; the head is only for the last token of a prompt."""
    share = model.num_used / model.num_experts if model.num_experts else 1.0
    layers = [tensor for tensor in model.tensors if tensor.is_matrix and tensor.layer >= 0]
    return sum(tensor.num_values * (share if tensor.is_expert else 1.0) for tensor in layers)


def _read_bytes(model: PlannedModel, tensor: PlannedTensor, packed: bool) -> float:
    if tensor.name == EMBEDDING and not model.is_tied:
        return tensor.num_bytes / max(model.vocab_size, 1)
    return tensor.memory_bytes(packed)


def _memory_lane(model: PlannedModel, read: Range, gpus: tuple[GpuShare, ...], packed: bool) -> Lane:
    num_bytes = weight_bytes(model, 1, packed) - sum(_gpu_weight_bytes(model, share, packed) for share in gpus)
    speed = read.times(DECODE_SHARE)
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
    seconds = [hands_over * HANDOVER_SECONDS[i] + num_bytes / (link * PCIE_SHARE[1 - i]) for i in (0, 1)]
    return Lane(f"PCIe {share.facts.index}", f"{hands_over} hand-overs, {num_bytes / 1e6:.2f} MB", *seconds)


def _unknown(what: str, missing: str) -> Prediction:
    advice = "`ktdesk probe --measure` measures it, and --what-if takes it"
    return Prediction(what, None, None, None, (), f"unknown: {missing} is not known; {advice}")


def _sum(what: str, num_tokens: int, lanes: list[Lane], basis: str) -> Prediction:
    fastest, slowest = sum(lane.min_seconds for lane in lanes), sum(lane.max_seconds for lane in lanes)
    return Prediction(what, num_tokens / slowest, num_tokens / fastest, _limiting(lanes), tuple(lanes), basis)


def _limiting(lanes: list[Lane]) -> str:
    return max(lanes, key=lambda lane: lane.min_seconds + lane.max_seconds).name
