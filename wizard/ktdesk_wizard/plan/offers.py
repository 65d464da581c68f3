"""The quantizations that a repository offers, each with its plan.

Of one of them the header was read. The others have the same shapes; their matrices get the bits that make the whole
as large as their files are, so what is in memory is right in sum and estimated tensor by tensor.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ktdesk_wizard.plan.choose import best_of, compared
from ktdesk_wizard.plan.corrections import NO_EXPERIENCE, Experience
from ktdesk_wizard.plan.model import PlannedModel
from ktdesk_wizard.plan.plan import Plan, Rejected
from ktdesk_wizard.plan.planner import make_plan
from ktdesk_wizard.plan.quantization import resized
from ktdesk_wizard.plan.wishes import EngineAbilities, Wishes
from ktdesk_wizard.probe.machine_facts import MachineFacts

FIRST_GUESS_SHARE = 0.85
"""Of the available memory: a file up to that may fit."""


@dataclass(frozen=True)
class Offered:
    """What a repository's list says of one quantization."""

    quantization: str
    num_bytes: int
    num_files: int


@dataclass(frozen=True)
class Offer:
    offered: Offered
    plan: Plan


def first_guess(offered: Sequence[Offered], available_bytes: int | None) -> Offered:
    """Whose header to read first: the largest that may fit, or the smallest. offered: the largest first."""
    room = (available_bytes or 0) * FIRST_GUESS_SHARE
    return next((each for each in offered if each.num_bytes <= room), offered[-1])


def make_offers(
    facts: MachineFacts,
    model: PlannedModel,
    of: Offered,
    offered: Sequence[Offered],
    wishes: Wishes,
    abilities: EngineAbilities,
    experience: Experience = NO_EXPERIENCE,
) -> list[Offer]:
    """model: from the header of `of`. The plan of `of` is exact."""
    models = [model if each == of else resized(model, each) for each in offered]
    plans = [make_plan(facts, m, wishes, abilities, experience.about(m, facts, wishes)) for m in models]
    return [Offer(*pair) for pair in zip(offered, plans, strict=True)]


def best_offer(offers: Sequence[Offer], trained_context: int) -> Offer:
    """The largest that fits now with a useful context; else that would fit; else the smallest.

    offers: the largest first.
    """
    plan = best_of([offer.plan for offer in offers], trained_context)
    return next(offer for offer in offers if offer.plan is plan)


def with_rejected(offers: Sequence[Offer], chosen: Offer) -> Plan:
    """The plan of the chosen one, with what the others would be like."""
    others = [Rejected(o.offered.quantization, compared(o.plan, chosen.plan)) for o in offers if o is not chosen]
    return replace(chosen.plan, rejected=(*chosen.plan.rejected, *others))
