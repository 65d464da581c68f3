"""Plans of one model with other wishes and other quantizations, at once: what the controls of a plan turn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ktdesk_profiles.models import ModelProfile
from ktdesk_wizard.plan.catalogue import model_of_profile
from ktdesk_wizard.plan.choose import USUAL, best_of, compared
from ktdesk_wizard.plan.corrections import conditions_of, corrections_for
from ktdesk_wizard.plan.model import PlannedModel
from ktdesk_wizard.plan.offers import Offered
from ktdesk_wizard.plan.plan import Plan, Rejected
from ktdesk_wizard.plan.planner import make_plan
from ktdesk_wizard.plan.quantization import requantized, resized
from ktdesk_wizard.plan.wishes import Wishes, engine_abilities
from ktdesk_wizard.probe.machine_facts import MachineFacts
from ktdesk_wizard.prove.run import engine_build
from ktdesk_wizard.prove.store import load_runs

SMALLEST_CONTEXT = 1024


@dataclass(frozen=True)
class WhatIf:
    """Reads no file and asks nobody but for the runs that were kept."""

    facts: MachineFacts
    model: PlannedModel
    """Of the file, or of the catalogue."""
    wishes: Wishes
    """That it began with."""
    offered: tuple[Offered, ...] = ()
    """By a repository; the largest first."""
    data_folder: Path | None = None
    """Where earlier runs are, which correct the plan of a file."""

    @property
    def quantizations(self) -> tuple[str, ...]:
        """The largest first. Of a file the one that it has comes first: all others are other files."""
        if self.offered:
            names = tuple(each.quantization for each in self.offered)
            return names if self.model.quantization in names else (self.model.quantization, *names)
        own = () if self.model.is_estimate else (self.model.quantization,)
        return (*own, *(name for name in USUAL if name not in own))

    @property
    def contexts(self) -> tuple[int, ...]:
        """From a small one to that which it was trained for, each twice as long."""
        most, found = self.model.context_length, []
        context = SMALLEST_CONTEXT
        while context < most:
            found.append(context)
            context *= 2
        return (*found, most)

    def plan(self, wishes: Wishes, quantization: str | None = None) -> Plan:
        """quantization: one of `quantizations`; None: that of the file, or the best of a catalogue's model."""
        if quantization is None and self.model.is_estimate:
            plans = [self._planned(requantized(self.model, name), wishes) for name in USUAL]
            return best_of(plans, self.model.context_length)
        return self._planned(self._as(quantization), wishes)

    def others(self, plan: Plan, wishes: Wishes) -> tuple[Rejected, ...]:
        """What each other quantization would be like instead. Not for an event loop."""
        plans = [self.plan(wishes, name) for name in self.quantizations if name != plan.quantization]
        return tuple(Rejected(other.quantization, compared(other, plan)) for other in plans)

    def _as(self, quantization: str | None) -> PlannedModel:
        if quantization is None or quantization == self.model.quantization:
            return self.model
        size = next((each for each in self.offered if each.quantization == quantization), None)
        return requantized(self.model, quantization) if size is None else resized(self.model, size)

    def _planned(self, model: PlannedModel, wishes: Wishes) -> Plan:
        abilities = engine_abilities()
        if model is not self.model or model.is_estimate or self.data_folder is None:
            return make_plan(self.facts, model, wishes, abilities)
        conditions = conditions_of(self.facts, wishes, engine_build())
        corrections = corrections_for(model, load_runs(self.data_folder), conditions)
        return make_plan(self.facts, model, wishes, abilities, corrections)


def what_if_of_profile(profile: ModelProfile, facts: MachineFacts, wishes: Wishes) -> WhatIf:
    """Before any header was read."""
    return WhatIf(facts, model_of_profile(profile), wishes)


def with_offered(what_if: WhatIf, offered: Sequence[Offered], quantization: str) -> WhatIf:
    """With what the repository has besides, and the name by which that knows the file."""
    return replace(what_if, offered=tuple(offered), model=replace(what_if.model, quantization=quantization))
