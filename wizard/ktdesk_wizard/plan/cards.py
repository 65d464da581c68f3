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
    for gpu in facts.gpus.gpus:
        name = card_name(gpu)
        why = _why_not(gpu, wishes, abilities)
        if why is None and cards:
            why = f"the engine uses one card, {cards[0][0].index} in this plan; CUDA_VISIBLE_DEVICES says which"
        if why:
            refused.append(Rejected(name, why))
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
