"""Which cards a plan may use, and why not the others."""

from __future__ import annotations

from collections.abc import Sequence

from ktdesk_wizard.plan.plan import Rejected
from ktdesk_wizard.plan.wishes import EngineAbilities, Wishes
from ktdesk_wizard.probe.machine_facts import GpuFacts, MachineFacts


def usable_cards(
    facts: MachineFacts, wishes: Wishes, abilities: EngineAbilities
) -> tuple[list[tuple[GpuFacts, int]], list[Rejected]]:
    """Those to plan with, each with the bytes that may be used, and why not the others."""
    cards: list[tuple[GpuFacts, int]] = []
    refused = []
    visible = facts.gpus.visible
    used = next(iter(visible.value or ()), None)
    for gpu in facts.gpus.gpus:
        why = _why_not(gpu, wishes, abilities)
        if why is None and visible.value is not None and gpu.index not in visible.value:
            why = f"CUDA does not see it: {visible.source}"
        if why is None and used is None and cards:
            used = cards[0][0].index  # nobody says which: the first that can be used
        if why is None and used is not None and gpu.index != used:
            why = f"the engine uses one card, {used} in this plan; CUDA_VISIBLE_DEVICES says which"
        if why:
            refused.append(Rejected(card_name(gpu), why))
        else:
            assert gpu.free_bytes.value is not None
            cards.append((gpu, min(gpu.free_bytes.value, wishes.max_gpu_bytes or gpu.free_bytes.value)))
    return cards, refused


def card_name(gpu: GpuFacts) -> str:
    return f"card {gpu.index} ({gpu.name.value or 'unknown'})"


def _why_not(gpu: GpuFacts, wishes: Wishes, abilities: EngineAbilities) -> str | None:
    if wishes.devices == "cpu":
        return "--device cpu leaves it out"
    if wishes.devices == "auto" and not abilities.has_gpu:
        return "nothing has run on a card yet, so none is used unasked; --device gpu plans with it"
    if gpu.is_unified.value:
        return "its memory is the machine's: nothing is gained by moving weights"
    if gpu.free_bytes.value is None:
        return f"its free memory is unknown: {gpu.free_bytes.source}"
    return None


def which_card(facts: MachineFacts, card: GpuFacts) -> str | None:
    """Where it is not plain which one is meant."""
    gpus = facts.gpus
    if len(gpus.gpus) < 2:
        return None
    place = "" if card.bus_id.value is None else f" at {card.bus_id.value}"
    return f"the card is {card.index} by the bus, {card.name.value or 'unknown'}{place}: {gpus.visible.source}"


def missing_card(facts: MachineFacts, refused: Sequence[Rejected]) -> str:
    """What was looked for. refused: the cards that there are."""
    if refused:
        whys = "; ".join(f"{each.what}: {each.why}" for each in refused)
        return f"a card is asked for, but no card can be used ({whys})"
    why = "" if facts.gpus.driver.value is not None else f" ({facts.gpus.driver.source})"
    return f"a card is asked for, but no NVIDIA card was found{why}"


def no_card(facts: MachineFacts, refused: Sequence[Rejected]) -> str:
    """As `missing_card`, and what the plan assumes instead."""
    hint = (
        "" if refused else "; --what-if FILE plans for a machine with one, from what `ktdesk probe --json` prints there"
    )
    return f"{missing_card(facts, refused)}: all of this plan is for the processor and its memory{hint}"
