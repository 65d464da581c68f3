"""What `ktdesk plan` does: facts, model and wishes together, and the plan that comes of them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from ktdesk import plan_text
from ktdesk.errors import UsageError
from ktdesk.json_output import json_text
from ktdesk.model_paths import DEMO, check_named, model_path, served_path
from ktdesk.quality_figures import Figures, as_lines, load_figures
from ktdesk.settings import Settings
from ktdesk_engine.errors import ModelFileError
from ktdesk_profiles.machines import machine_texts
from ktdesk_profiles.models import ModelProfile, load_models, nearest
from ktdesk_wizard.hub.names import parse_name
from ktdesk_wizard.plan.catalogue import model_of_profile
from ktdesk_wizard.plan.choose import USUAL, choose_plan
from ktdesk_wizard.plan.choose import why_not as compared_with
from ktdesk_wizard.plan.corrections import NO_EXPERIENCE, Experience
from ktdesk_wizard.plan.model import model_of_file
from ktdesk_wizard.plan.offers import Offer
from ktdesk_wizard.plan.plan import MEMORY, Plan, Rejected
from ktdesk_wizard.plan.planner import NOT_MEASURED, make_plan
from ktdesk_wizard.plan.quantization import checked_quantization, requantized
from ktdesk_wizard.plan.speed import MEASURE_IT
from ktdesk_wizard.plan.ways import Way, ways_to_compute
from ktdesk_wizard.plan.wishes import Wishes, engine_abilities
from ktdesk_wizard.probe.facts_json import read_machine, read_what_if
from ktdesk_wizard.probe.machine_facts import MachineFacts
from ktdesk_wizard.probe.measurement import with_measurement
from ktdesk_wizard.probe.probe import probe
from ktdesk_wizard.prove.run import engine_build
from ktdesk_wizard.prove.store import load_runs
from ktdesk_wizard.store.models import stored_models
from ktdesk_wizard.store.names import find_models, name_of

MEASURE_IT_THERE = "a file of `ktdesk probe --measure --json`, written on that machine, has it"
NOT_MEASURED_THERE = (
    "speeds are not from measurements of that machine: a file of `ktdesk probe --measure --json`, written there, has "
    "them"
)


@dataclass(frozen=True)
class Planned:
    plan: Plan
    why_not: Rejected | None
    offers: tuple[Offer, ...] = ()
    """Of a repository: what it has."""
    ways: tuple[Way, ...] = ()
    """To compute; of files and the catalogue's models."""
    quality: tuple[Figures, ...] = ()
    """What options that change the answers of a file here were found to cost."""
    name: str | None = None
    """Of a file here: what it is called."""

    def as_json(self) -> str:
        facts = asdict(self.plan)
        if self.name is not None:
            facts["name"] = self.name
        if self.why_not is not None:
            facts["why_not"] = asdict(self.why_not)
        if self.offers:
            facts["offers"] = [_offer_facts(offer) for offer in self.offers]
        if self.quality:
            facts["measured_quality"] = [dict(figures) for figures in self.quality]
        if self.ways:
            facts["ways_to_compute"] = [asdict(way) for way in self.ways]
        return json_text(facts)

    def as_text(self, *, explain: bool) -> str:
        parts = [plan_text.as_text(self.plan, explain=explain, name=self.name)]
        if self.quality:
            told = "\n".join(f"  {line}" for line in as_lines(self.quality))
            parts.append(f"Measured with `ktdesk eval`, against the exact path:\n{told}")
        if explain and self.ways:
            parts.append(plan_text.ways_text(self.ways))
        if self.offers:
            parts.append(plan_text.offers_text(self.offers, self.plan.quantization))
        if self.why_not is not None:
            parts.append("\n".join(plan_text.filled(f"{self.why_not.what}: {self.why_not.why}.")))
        return "\n\n".join(parts)


def _offer_facts(offer: Offer) -> dict[str, Any]:
    return {
        **asdict(offer.offered),
        "verdict": asdict(offer.plan.verdict),
        "memory_bytes": offer.plan.bytes_of(MEMORY),
        "prefill": asdict(offer.plan.prefill),
        "decode": asdict(offer.plan.decode),
        "is_estimate": offer.plan.is_estimate,
    }


@dataclass(frozen=True)
class Question:
    """What `ktdesk plan` is asked, besides the model."""

    wishes: Wishes
    what_if: str | None = None
    why_not: str | None = None
    quantization: str | None = None
    """Of a catalogue's or a hub's model; None takes the most exact that fits."""
    sources: tuple[str, ...] = ()


def planned(model: str, question: Question, settings: Settings) -> Planned:
    found = _planned_here(model, question, settings)
    return found if question.what_if is None else replace(found, plan=_for_another_machine(found.plan))


def _for_another_machine(plan: Plan) -> Plan:
    """What is measured here is not of that machine."""

    def told(text: str) -> str:
        return text.replace(MEASURE_IT, MEASURE_IT_THERE).replace(NOT_MEASURED, NOT_MEASURED_THERE)

    prefill, decode, deep = (replace(p, basis=told(p.basis)) for p in (plan.prefill, plan.decode, plan.decode_deep))
    return replace(plan, prefill=prefill, decode=decode, decode_deep=deep, notes=tuple(map(told, plan.notes)))


def _planned_here(model: str, question: Question, settings: Settings) -> Planned:
    check_named(model)
    facts = machine_facts(settings, question.what_if)
    abilities = engine_abilities()
    name = None if is_here(model, settings) else parse_name(model)
    if name is not None:
        from ktdesk.hub_planning import planned_from_hub

        return planned_from_hub(name, question, settings, facts, abilities)
    profile, experience = _profile(model, settings), experience_of(question, settings)
    if profile is None:
        if question.quantization is not None:
            raise UsageError("--quant is for names of the catalogue or of a hub: a file has the one that it has")
        planned_model = model_of_file(model_path(model, settings))
        of_file = planned_model

        def planned_with(wishes: Wishes) -> Plan:
            return make_plan(facts, of_file, wishes, abilities, experience.about(of_file, facts, wishes))

        plan = planned_with(question.wishes)
    else:
        planned_model = model_of_profile(profile)
        choices = USUAL if question.quantization is None else (checked_quantization(question.quantization),)
        plan = choose_plan(facts, planned_model, question.wishes, abilities, choices, experience)
        plan = replace(plan, notes=(*plan.notes, *_about(profile)))
        chosen = requantized(planned_model, plan.quantization)

        def planned_with(wishes: Wishes) -> Plan:
            return make_plan(facts, chosen, wishes, abilities, experience.about(chosen, facts, wishes))

    ways = ways_to_compute(planned_with, question.wishes)
    file = Path(plan.source)
    quality = tuple(load_figures(settings.data_folder, file)) if profile is None and file.is_file() else ()
    called = name_of(file, stored_models(settings.models_folder)) if profile is None else None
    if question.why_not is None:
        return Planned(plan, None, ways=ways, quality=quality, name=called)
    other = compared_with(facts, planned_model, question.wishes, abilities, plan, question.why_not, experience)
    return Planned(plan, other, ways=ways, quality=quality, name=called)


def experience_of(question: Question, settings: Settings) -> Experience:
    """None of a machine that is not here."""
    return NO_EXPERIENCE if question.what_if else Experience(load_runs(settings.data_folder), engine_build())


def is_here(model: str, settings: Settings) -> bool:
    """A file, a model of the store, or what a server has."""
    found = os.path.lexists(model) or find_models(model, stored_models(settings.models_folder))
    return bool(found or served_path(model, settings))


def is_whole(model: str, settings: Settings) -> bool:
    """A file, what a server has, or a model of the store of which nothing has to be fetched any more, or can be."""
    found = find_models(model, stored_models(settings.models_folder))
    can_be_fetched = [each for each in found if each.state != "whole" and each.record.repository is not None]
    is_here = os.path.lexists(model) or len(found) > len(can_be_fetched)
    return is_here or (not found and served_path(model, settings) is not None)


def catalogue(settings: Settings) -> dict[str, ModelProfile]:
    """What ships, and what the user's own files add or override."""
    return load_models(settings.data_folder / "profiles" / "models")


def catalogue_text(settings: Settings) -> str:
    """A line a model."""
    return "\n".join(
        f"{name:<24}{profile.total_billions:>8,.1f} B  {profile.title}" for name, profile in catalogue(settings).items()
    )


def catalogue_facts(settings: Settings) -> dict[str, Any]:
    return {"models": [asdict(profile) for profile in catalogue(settings).values()]}


def _profile(model: str, settings: Settings) -> ModelProfile | None:
    """None where the name is that of a file. ModelFileError, with those that are near, where it is nothing at all."""
    if model == DEMO or model.endswith(".gguf"):
        return None
    models = catalogue(settings)
    found = models.get(model.lower())
    if found is None and is_here(model, settings):
        return None
    if found is None:
        close = nearest(model, models)
        advice = f"did you mean {' or '.join(close)}?" if close else "`ktdesk plan --list` shows the catalogue"
        raise ModelFileError(model, f"neither a file, nor a model of the store, the catalogue or a hub: {advice}")
    return found


def _about(profile: ModelProfile) -> Iterator[str]:
    if profile.source != "read":
        yield f"the shape is {profile.source}: not from the model's configuration"
    if profile.note:
        yield profile.note
    seen = [repository.id for repository in profile.repositories if repository.seen]
    named = [repository.id for repository in profile.repositories if not repository.seen]
    where = f"seen at {', '.join(seen)}" if seen else f"not seen yet; by the rule of names at {', '.join(named)}"
    yield f"fetch it first with `ktdesk pull {profile.name}`: {where}"


def machine_facts(settings: Settings, what_if: str | None = None) -> MachineFacts:
    """what_if: a file, or the name of a machine's profile."""
    if what_if is not None and not os.path.lexists(what_if):
        machines = machine_texts(settings.data_folder / "profiles" / "machines")
        if what_if in machines:
            origin, text = machines[what_if]
            return read_machine(text, origin)
        raise UsageError(f"{what_if!r} is neither a file nor a machine; those are {', '.join(machines)}")
    facts = with_measurement(probe(settings.models_folder), settings.data_folder)
    return facts if what_if is None else read_what_if(Path(what_if), facts)
