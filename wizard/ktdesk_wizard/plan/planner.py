"""`make_plan`: facts, model and wishes in, a plan out. It reads nothing and asks nobody."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from ktdesk_engine.config import Compute
from ktdesk_engine.errors import ResourceError
from ktdesk_engine.kv_cache import LayerCacheShape, cache_bytes
from ktdesk_engine.machine import divided
from ktdesk_engine.memory import decide_cache_type, decide_context
from ktdesk_engine.prefill_chunk import ON_TILES, ExpertSizes, decide_prefill_chunk
from ktdesk_wizard.errors import WishError
from ktdesk_wizard.plan.cards import card_name, no_card, usable_cards, which_card
from ktdesk_wizard.plan.ceilings import ceilings_of
from ktdesk_wizard.plan.corrections import NO_CORRECTIONS, Corrections
from ktdesk_wizard.plan.ledger import WEIGHTS, Sizes, cache_entries, overhead_entries, weight_entries
from ktdesk_wizard.plan.model import PlannedModel, PlannedTensor
from ktdesk_wizard.plan.placement import Placement, nothing_placed, place
from ktdesk_wizard.plan.plan import (
    MEMORY,
    LedgerEntry,
    NodeShare,
    PlaceTotal,
    Plan,
    Prediction,
    Rejected,
    peak_bytes,
)
from ktdesk_wizard.plan.speed import SHORT_DEPTH, GpuShare, predict_decode, predict_prefill
from ktdesk_wizard.plan.verdict import judge
from ktdesk_wizard.plan.wishes import EngineAbilities, Wishes
from ktdesk_wizard.probe.machine_facts import MachineFacts
from ktdesk_wizard.probe.measurement import busy_note

NOT_MEASURED = "speeds are not from measurements here: `ktdesk probe --measure` takes them"
FALLBACK_CONTEXT = 4096
"""Where memory does not suffice for any: so that the plan can say what would be needed."""
GIB = 2**30


@dataclass(frozen=True)
class _Cached:
    """For the engine's own decision of the context."""

    context_length: int
    cache_shapes: Sequence[LayerCacheShape]


def make_plan(
    facts: MachineFacts,
    model: PlannedModel,
    wishes: Wishes,
    abilities: EngineAbilities,
    corrections: Corrections = NO_CORRECTIONS,
    *,
    has_server: bool = True,
) -> Plan:
    """corrections: of runs on this machine. has_server: False of one process with no server around the engine.

    ConfigError where a wish contradicts the model: more context than it was trained for, a cache type that its heads
    do not allow.
    """
    isa = facts.cpu.isa.value or "scalar"
    _check_threads(facts, wishes)
    compute = wishes.compute_on(isa)
    available = _available(facts, wishes)
    num_threads = wishes.num_threads or facts.cpu.num_threads.value or 1
    cards, refused = usable_cards(facts, wishes, abilities)
    sizes = replace(_sizes(facts, model, wishes, abilities, compute, available), has_server=has_server)
    on_card = replace(sizes, prefill_chunk=decide_prefill_chunk(None, None, 0))
    placement = place(model, cards[0], on_card, wishes.rules) if cards else nothing_placed(model)
    if placement.why_not is not None:
        refused.append(Rejected(card_name(cards[0][0]), placement.why_not))
    elif cards:
        sizes = on_card
    ledger = _ledger(model, sizes, placement, corrections)
    shares = tuple(replace(share, copies=facts.gpus.copies.value) for share in placement.shares)
    ceilings = ceilings_of(facts, num_threads)

    def need(other: Sizes) -> int:
        placed = place(model, cards[0], other, wishes.rules) if cards else nothing_placed(model)
        return peak_bytes(_ledger(model, other, placed, corrections), MEMORY, WEIGHTS)

    def decode(depth: int) -> Prediction:
        predicted = predict_decode(model, ceilings, shares, depth, sizes.cache_type, compute)
        return predicted if shares else corrections.corrected(predicted, "decode", depth)

    prefill = predict_prefill(model, ceilings, sizes.prefill_chunk, compute)

    return Plan(
        model=model.name,
        source=model.source,
        architecture=model.architecture,
        quantization=model.quantization,
        file_bytes=model.file_bytes,
        is_estimate=model.is_estimate,
        context=sizes.context,
        cache_type=sizes.cache_type,
        num_sequences=sizes.num_sequences,
        compute=compute,
        isa=isa,
        num_threads=num_threads,
        nodes=_nodes(facts, num_threads, ledger),
        gpu_parts=placement.parts,
        ledger=ledger,
        totals=tuple(_totals(facts, wishes, ledger, available)),
        verdict=judge(model, sizes, need, available, _capacity(facts, wishes), facts.memory.available_bytes.value),
        prefill=prefill if shares else corrections.corrected(prefill, "prefill", 0),
        decode=decode(min(SHORT_DEPTH, sizes.context)),
        decode_deep=decode(sizes.context),
        rejected=(*refused, *_rejected(model, sizes, wishes)),
        notes=(*_notes(facts, model, wishes, abilities, placement, refused), *_looked_up(facts, prefill)),
        command=_command(model, sizes, wishes, placement),
    )


def shares_on_card(
    facts: MachineFacts, model: PlannedModel, wishes: Wishes, abilities: EngineAbilities
) -> tuple[GpuShare, ...]:
    """What a plan with these wishes puts on a card."""
    compute = wishes.compute_on(facts.cpu.isa.value or "scalar")
    sizes = _sizes(facts, model, wishes, abilities, compute, _available(facts, wishes))
    on_card = replace(sizes, prefill_chunk=decide_prefill_chunk(None, None, 0))
    cards, _ = usable_cards(facts, wishes, abilities)
    placement = place(model, cards[0], on_card, wishes.rules) if cards else nothing_placed(model)
    return tuple(replace(share, copies=facts.gpus.copies.value) for share in placement.shares)


def _check_threads(facts: MachineFacts, wishes: Wishes) -> None:
    """Threads that share a processor wait for each other at every step: the engine refuses them too."""
    processors = facts.cpu.num_hardware_threads.value
    if wishes.num_threads is not None and processors is not None and wishes.num_threads > processors:
        raise WishError(f"num_threads {wishes.num_threads}: there are {processors} processors that ktdesk may use")


def _available(facts: MachineFacts, wishes: Wishes) -> int | None:
    available = facts.memory.available_bytes.value
    if available is None or wishes.max_memory_bytes is None:
        return available if wishes.max_memory_bytes is None else wishes.max_memory_bytes
    return min(available, wishes.max_memory_bytes)


def _capacity(facts: MachineFacts, wishes: Wishes) -> int | None:
    """Of main memory, were everything else closed."""
    limits = (facts.memory.total_bytes.value, facts.memory.limit_bytes.value, wishes.max_memory_bytes)
    return min((limit for limit in limits if limit is not None), default=None)


def _sizes(
    facts: MachineFacts,
    model: PlannedModel,
    wishes: Wishes,
    abilities: EngineAbilities,
    compute: Compute,
    available: int | None,
) -> Sizes:
    """With the engine's own defaults."""
    packed = compute != "float32"
    cache_type = decide_cache_type(wishes.cache_type, compute)
    weights = sum(tensor.memory_bytes(packed) for tensor in model.tensors if packed and _counts(model, tensor))
    shapes = [layer.shape for layer in model.layers if layer.shape is not None]
    cached = _Cached(model.context_length, shapes)
    left = max((available or 0) - weights, 0)
    try:
        wish = wishes.context
        roomy = left if wish is None else 2**62  # whether a wish fits, the verdict says
        context = decide_context(wish, cached, roomy, cache_type, wishes.num_sequences)
    except ResourceError:
        context = min(model.context_length, FALLBACK_CONTEXT)
    return Sizes(
        context=context,
        cache_type=cache_type,
        num_sequences=wishes.num_sequences,
        prefill_chunk=decide_prefill_chunk(None, _on_tiles(facts, model, compute), left),
        is_packed=packed,
        has_huge_pages=facts.memory.huge_pages.value != "never" and sum(n.num_cores > 0 for n in facts.numa.nodes) < 2,
        cuts_windows=abilities.cuts_windows,
    )


def _on_tiles(facts: MachineFacts, model: PlannedModel, compute: Compute) -> ExpertSizes | None:
    if not model.num_experts or facts.cpu.isa.value != "amx" or compute not in ON_TILES:
        return None
    return ExpertSizes(model.num_experts, model.num_used, model.hidden, model.expert_width)


def _counts(model: PlannedModel, tensor: PlannedTensor) -> bool:
    """As the engine's own decision counts: panels, which an estimate has not been divided into yet."""
    return tensor.has_panels or model.is_estimate


def _ledger(
    model: PlannedModel, sizes: Sizes, placement: Placement, corrections: Corrections
) -> tuple[LedgerEntry, ...]:
    weights = weight_entries(model, placement.in_memory, sizes, MEMORY)
    cache = () if placement.has_cache else cache_entries(model.layers, sizes, MEMORY)
    entries = (*weights, *cache, *overhead_entries(model, sizes), *placement.ledger)
    measured = None if placement.shares else corrections.memory_bytes()
    return entries if measured is None else (*entries, LedgerEntry(MEMORY, "measured difference", *measured))


def _totals(
    facts: MachineFacts, wishes: Wishes, ledger: Sequence[LedgerEntry], available: int | None
) -> Iterator[PlaceTotal]:
    yield PlaceTotal(MEMORY, peak_bytes(ledger, MEMORY, WEIGHTS), available, _capacity(facts, wishes))
    for gpu in facts.gpus.gpus:
        name = f"gpu {gpu.index}"
        if any(entry.place == name for entry in ledger):
            total = peak_bytes(ledger, name, WEIGHTS)
            yield PlaceTotal(name, total, gpu.free_bytes.value, gpu.total_bytes.value)


def _nodes(facts: MachineFacts, num_threads: int, ledger: Sequence[LedgerEntry]) -> tuple[NodeShare, ...]:
    """Threads in proportion to cores, and each node a slice of every matrix in proportion to its threads."""
    nodes = [node for node in facts.numa.nodes if node.num_cores]
    weights = sum(entry.num_bytes for entry in ledger if entry.place == MEMORY and entry.what in WEIGHTS)
    threads = divided(num_threads, [node.num_cores for node in nodes]) if nodes else []
    return tuple(
        NodeShare(node.id, count, weights * count // max(num_threads, 1), node.free_bytes.value)
        for node, count in zip(nodes, threads, strict=True)
    )


def _rejected(model: PlannedModel, sizes: Sizes, wishes: Wishes) -> Iterator[Rejected]:
    shapes = [layer.shape for layer in model.layers if layer.shape is not None]

    def cache_gib(context: int, sizes: Sizes) -> str:
        return f"{sizes.num_sequences * cache_bytes(shapes, context, sizes.cache_type) / GIB:.2f} GiB"

    if wishes.context is None and sizes.context < model.context_length:
        yield Rejected(
            f"the context of {model.context_length:,} tokens that it was trained for",
            f"its cache takes {cache_gib(model.context_length, sizes)}, more than a quarter of the memory that weights "
            f"leave; --context {model.context_length} asks for it",
        )
    if wishes.cache_type is None and sizes.is_packed:
        exact = replace(sizes, cache_type="float32")
        yield Rejected(
            "a cache in float32",
            f"{cache_gib(sizes.context, exact)} instead of {cache_gib(sizes.context, sizes)}, for a difference that "
            "does not show; --cache-type float32 asks for it",
        )
        yield Rejected("a cache in q8_0", "half of the bytes, but answers change; --cache-type q8_0 asks for it")
    if sizes.is_packed:
        yield Rejected("computing in float32", "exact, but many times slower; --compute float32 asks for it")


def _notes(
    facts: MachineFacts,
    model: PlannedModel,
    wishes: Wishes,
    abilities: EngineAbilities,
    placement: Placement,
    refused: Sequence[Rejected],
) -> Iterator[str]:
    if wishes.asks_for_cards and not placement.shares:
        yield no_card(facts, refused)
    if wishes.compute in ("mixed", "bf16") and facts.cpu.isa.value != "amx":
        yield f"this processor has no tile registers: {wishes.compute} is int8 here"
    if model.architecture not in abilities.architectures:
        known = ", ".join(sorted(abilities.architectures))
        yield f"this build does not run the architecture {model.architecture!r} (it runs {known}): sizes alone hold"
    unreadable = {t.type_name for t in model.tensors if t.weight_type is None}
    if unreadable and not model.is_estimate:
        yield f"this build cannot compute with {', '.join(sorted(unreadable))}: take another quantization"
    if model.is_estimate:
        yield "sizes are estimated from bits per weight; the file's header will tell them exactly"
    if placement.shares and not abilities.has_gpu:
        yield "nothing has run on a card yet: `ktdesk doctor --gpu` tests whether it would"
    which = [which_card(facts, share.facts) for share in placement.shares]
    yield from filter(None, which)
    if any(part.num_resident for part in placement.parts):
        yield "experts on the card keep their copy in memory, so that one that leaves it is computed there at once"
    if wishes.rules and not placement.shares:
        yield "placement rules say nothing without a card"
    if model.left_out_bytes:
        yield f"{model.left_out_bytes / GIB:.1f} GiB for predicting the token after the next are left out"
    if facts.numa.balancing.value and len([n for n in facts.numa.nodes if n.num_cores]) > 1:
        yield "the system moves pages between nodes by itself: `sysctl kernel.numa_balancing=0` (root) stops that"
    busy = busy_note(facts)
    if busy is not None:
        yield busy


def _looked_up(facts: MachineFacts, prefill: Prediction) -> Iterator[str]:
    """Where there are speeds. Where there are none, the prediction itself says how to get them."""
    if facts.memory.read_bytes_s.value is None and prefill.tok_s is not None:
        yield NOT_MEASURED


def _command(model: PlannedModel, sizes: Sizes, wishes: Wishes, placement: Placement) -> tuple[str, ...]:
    """That runs what was planned; on a card as many experts as fit, which the engine counts itself."""
    options = ["--context", str(sizes.context)]
    if wishes.compute != "auto":
        options += ["--compute", wishes.compute]
    if wishes.cache_type is not None:
        options += ["--cache-type", sizes.cache_type]
    if wishes.num_threads is not None:
        options += ["--threads", str(wishes.num_threads)]
    if placement.shares:
        options += ["--accelerator", "cuda"]
        if wishes.max_gpu_bytes is not None:
            options += ["--accelerator-memory", f"{wishes.max_gpu_bytes / GIB:g}"]
        if wishes.placement is not None:
            options += ["--placement", wishes.placement]
    return ("ktdesk", "chat", model.source, *options)
