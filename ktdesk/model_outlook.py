"""Finds every model that can be set up: the demo, what lies on this disk, the catalogue; and judges each."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from ktdesk.model_choices import ModelChoice, Outlook, file_choice
from ktdesk.model_paths import DEMO
from ktdesk.planning import catalogue
from ktdesk.settings import DEMO_VARIABLE, Settings
from ktdesk_engine.errors import EngineError
from ktdesk_engine.gguf.shards import ShardName
from ktdesk_profiles.demo import load_demo_profile
from ktdesk_wizard.demo_model import is_made
from ktdesk_wizard.download.adopting import usual_folders
from ktdesk_wizard.errors import WizardError
from ktdesk_wizard.plan.catalogue import model_of_profile
from ktdesk_wizard.plan.choose import USEFUL_CONTEXT, USUAL
from ktdesk_wizard.plan.model import model_of_file
from ktdesk_wizard.plan.plan import MEMORY, Plan
from ktdesk_wizard.plan.planner import make_plan
from ktdesk_wizard.plan.quantization import requantized
from ktdesk_wizard.plan.wishes import Wishes, engine_abilities
from ktdesk_wizard.probe.machine_facts import MachineFacts
from ktdesk_wizard.store.models import stored_models

DEMO_ROOM = 2
"""Times its file."""
MAX_FOUND = 200
"""Files of other programs that are listed."""


def model_choices(settings: Settings) -> list[ModelChoice]:
    """The demo first, then what is here, then the catalogue, the smallest first. Reads folders, so not for a loop."""
    listed = [demo_choice(settings), *_stored(settings)]
    known = {choice.path.resolve() for choice in listed if choice.path is not None}
    found = [choice for choice in _found(settings) if choice.path is not None and choice.path.resolve() not in known]
    profiles = sorted(catalogue(settings).values(), key=lambda profile: profile.total_billions)
    of_catalogue = [ModelChoice("catalogue", p.name, p.title, None, p.total_billions) for p in profiles]
    return [*listed, *found, *of_catalogue]


def demo_choice(settings: Settings) -> ModelChoice:
    profile = load_demo_profile()
    elsewhere = os.environ.get(DEMO_VARIABLE)
    path = Path(elsewhere) if elsewhere else settings.models_folder / "demo" / f"{profile.name}.gguf"
    is_here = path.is_file() if elsewhere else is_made(profile, path)
    return ModelChoice("demo", DEMO, profile.title, profile.made_bytes, None, path if is_here else None)


def _stored(settings: Settings) -> Iterator[ModelChoice]:
    for model in stored_models(settings.models_folder):
        if model.name == DEMO:
            continue
        path = model.path if model.has_all else None  # of what is no model, the outlook tells why
        is_file = model.record.repository is None and path is not None
        name = str(path) if is_file else model.name
        yield ModelChoice("partial" if path is None else "here", name, model.name, model.num_bytes, None, path)


def _found(settings: Settings) -> list[ModelChoice]:
    """GGUF files of other programs, the first of each set of shards."""
    found: list[ModelChoice | None] = []
    for folder in usual_folders():
        for parent, _, names in os.walk(folder):
            for name in sorted(names):
                shard = ShardName.parse(name)
                if name.endswith(".gguf") and (shard is None or shard.number == 1) and len(found) < MAX_FOUND:
                    found.append(file_choice(Path(parent, name)))
    return [choice for choice in found if choice is not None]


def outlook(choice: ModelChoice, facts: MachineFacts, settings: Settings) -> Outlook | None:
    """None where it is not here and nothing is known of its shape. EngineError or WizardError for a broken file."""
    wishes, abilities = Wishes(), engine_abilities()
    if choice.path is not None:
        return _outlook(make_plan(facts, model_of_file(choice.path), wishes, abilities))
    if choice.kind == "demo":
        return _of_demo(choice, facts)
    profile = catalogue(settings).get(choice.name)
    if profile is None:
        return None
    model = model_of_profile(profile)

    def planned(quantization: str) -> Plan:
        return make_plan(facts, requantized(model, quantization), wishes, abilities)

    smallest = planned(USUAL[-1])
    if smallest.verdict.kind in ("does not fit", "unknown"):
        return _outlook(smallest)
    useful = min(USEFUL_CONTEXT, model.context_length)
    plans = map(planned, USUAL)
    return _outlook(next((p for p in plans if p.verdict.kind == "fits" and p.context >= useful), smallest))


def _of_demo(choice: ModelChoice, facts: MachineFacts) -> Outlook:
    """Before it is made: its size alone."""
    num_bytes, free = choice.num_bytes or 0, facts.memory.available_bytes.value
    fits = free is None or free > DEMO_ROOM * num_bytes
    message = "it is made here, once, of about 90 MB that are fetched; its speed is known then"
    return Outlook("fits" if fits else "fits if you free memory", message, "", num_bytes, num_bytes, 0, None, None)


def outlook_or_problem(choice: ModelChoice, facts: MachineFacts, settings: Settings) -> Outlook | str | None:
    """Of a file that cannot be planned, why."""
    try:
        return outlook(choice, facts, settings)
    except (EngineError, WizardError, OSError) as error:
        return " ".join(str(error).split())


def _outlook(plan: Plan) -> Outlook:
    verdict, decode = plan.verdict, plan.decode
    message = verdict.message if verdict.change is None else f"{verdict.message}; it would fit with {verdict.change}"
    return Outlook(
        verdict.kind, message, plan.quantization, plan.file_bytes, plan.bytes_of(MEMORY), plan.context,
        decode.min_tok_s, decode.max_tok_s,
    )  # fmt: skip
