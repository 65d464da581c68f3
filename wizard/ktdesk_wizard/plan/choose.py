"""Which of several quantizations to plan with, and why not another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ktdesk_wizard.plan.corrections import NO_EXPERIENCE, Experience
from ktdesk_wizard.plan.model import PlannedModel
from ktdesk_wizard.plan.plan import MEMORY, Plan, Rejected
from ktdesk_wizard.plan.planner import make_plan
from ktdesk_wizard.plan.quantization import BITS_PER_WEIGHT, checked_quantization, requantized
from ktdesk_wizard.plan.verdict import SMALLEST_CONTEXT
from ktdesk_wizard.plan.wishes import EngineAbilities, Wishes
from ktdesk_wizard.probe.machine_facts import MachineFacts

GIB = 2**30
USUAL = ("Q8_0", "Q6_K", "Q5_K_M", "Q4_K_M", "IQ4_XS", "Q3_K_M", "UD-Q2_K_XL", "IQ1_S")
"""That most repositories offer, the most exact first."""
USEFUL_CONTEXT = 8192
"""More exact weights that leave less are not worth it, unless nothing leaves more."""


def choose_plan(
    facts: MachineFacts,
    model: PlannedModel,
    wishes: Wishes,
    abilities: EngineAbilities,
    quantizations: Sequence[str] = USUAL,
    experience: Experience = NO_EXPERIENCE,
) -> Plan:
    """With the most exact quantization that fits now with a useful context; else that would fit; else the smallest."""
    models = [requantized(model, name) for name in quantizations]
    plans = [make_plan(facts, m, wishes, abilities, experience.about(m, facts, wishes)) for m in models]
    chosen = best_of(plans, model.context_length)
    others = tuple(Rejected(plan.quantization, compared(plan, chosen)) for plan in plans if plan is not chosen)
    return replace(chosen, rejected=(*chosen.rejected, *others))


def best_of(plans: Sequence[Plan], trained_context: int) -> Plan:
    """plans: the most exact first. That which fits now, else would fit; of those that do not, the smallest.

    Of those that fit now, the first with a useful context, else with one for a conversation at all, else the first.
    """
    ranks = {"fits": 0, "fits if you free memory": 1, "unknown": 2, "does not fit": 3}
    best = min(ranks[plan.verdict.kind] for plan in plans)
    of_best = [plan for plan in plans if ranks[plan.verdict.kind] == best]
    if best == ranks["does not fit"]:
        return of_best[-1]
    leasts = (min(USEFUL_CONTEXT, trained_context), SMALLEST_CONTEXT) if best == ranks["fits"] else ()
    roomy = (plan for least in leasts for plan in of_best if plan.context >= least)
    return next(roomy, of_best[0])


def why_not(
    facts: MachineFacts,
    model: PlannedModel,
    wishes: Wishes,
    abilities: EngineAbilities,
    plan: Plan,
    name: str,
    experience: Experience = NO_EXPERIENCE,
) -> Rejected:
    """A quantization beside that of the plan. WishError where nobody knows it."""
    quantization = checked_quantization(name)
    if quantization == plan.quantization:
        return Rejected(quantization, "it is what was planned")
    as_other = requantized(model, quantization)
    other = make_plan(facts, as_other, wishes, abilities, experience.about(as_other, facts, wishes))
    return Rejected(quantization, compared(other, plan))


def compared(other: Plan, plan: Plan) -> str:
    """What another plan would be like instead."""
    size = f"{other.bytes_of(MEMORY) / GIB:.1f} GiB of memory instead of {plan.bytes_of(MEMORY) / GIB:.1f}"
    if other.verdict.kind != "fits":
        return f"{size}; {other.verdict.kind}: {other.verdict.message}"
    speed = ""
    if other.decode.max_tok_s and other.decode.min_tok_s and plan.decode.max_tok_s and plan.decode.min_tok_s:
        ratio = (other.decode.min_tok_s + other.decode.max_tok_s) / (plan.decode.min_tok_s + plan.decode.max_tok_s)
        speed = f"; decode at {ratio:.2f} times the speed"
    return f"{size}{speed}{_exactness(other.quantization, plan.quantization)}{_shorter(other, plan)}"


def _shorter(other: Plan, plan: Plan) -> str:
    if other.context >= plan.context:
        return ""
    return f"; leaves room for a context of {other.context:,} tokens instead of {plan.context:,}"


def _exactness(other: str, planned: str) -> str:
    bits, planned_bits = BITS_PER_WEIGHT.get(other), BITS_PER_WEIGHT.get(planned)
    if bits is None or planned_bits is None:
        return ""
    return "; less exact" if bits < planned_bits else "; more exact"
