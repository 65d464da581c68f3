"""Plans of models that are not here: the headers are read from a hub, nothing else."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from ktdesk.planning import Planned, Question, catalogue, experience_of
from ktdesk.settings import Settings
from ktdesk.terminal import Progress
from ktdesk_wizard.hub.headers import fetch_headers
from ktdesk_wizard.hub.http import Http
from ktdesk_wizard.hub.names import HubName, RepositoryName
from ktdesk_wizard.hub.sets import GgufSet, named_set, repository_sets, set_with, url_set
from ktdesk_wizard.hub.sources import find_repository, sources
from ktdesk_wizard.plan.choose import compared
from ktdesk_wizard.plan.choose import why_not as compared_with
from ktdesk_wizard.plan.corrections import Experience
from ktdesk_wizard.plan.model import PlannedModel, model_of_file
from ktdesk_wizard.plan.offers import Offer, Offered, best_offer, first_guess, make_offers, with_rejected
from ktdesk_wizard.plan.plan import Rejected
from ktdesk_wizard.plan.wishes import EngineAbilities
from ktdesk_wizard.probe.machine_facts import MachineFacts

MAX_HEADERS = 3
"""Sets whose headers are read: of the first guess, and of what then looks best."""


def planned_from_hub(
    name: HubName, question: Question, settings: Settings, facts: MachineFacts, abilities: EngineAbilities
) -> Planned:
    http, experience = Http(), experience_of(question, settings)
    sets, wanted = offered_sets(http, name, settings, question.quantization, question.sources)
    models = _Models(http, name, {_offered(each): each for each in sets if not each.num_missing})
    if wanted is not None:
        offers = _offers(models, _offered(wanted), question, facts, abilities, experience)
    else:
        chosen = first_guess(list(models.sets), facts.memory.available_bytes.value)
        for _ in range(MAX_HEADERS):
            offers = _offers(models, chosen, question, facts, abilities, experience)
            assert models.last is not None, "its headers were read just now"
            best = best_offer(offers, models.last.context_length).offered
            if best == chosen:
                break
            chosen = best
    return _answered(models, offers, question, facts, abilities, experience)


class _Models:
    """What a repository has, and the model whose headers were read last."""

    def __init__(self, http: Http, name: HubName, sets: dict[Offered, GgufSet]) -> None:
        self._http, self._name, self.sets = http, name, sets
        self.last: PlannedModel | None = None

    def read(self, chosen: Offered) -> PlannedModel:
        self.last = _model(self._http, self.sets[chosen], self._name)
        return self.last


def _offers(
    models: _Models,
    chosen: Offered,
    question: Question,
    facts: MachineFacts,
    abilities: EngineAbilities,
    experience: Experience,
) -> list[Offer]:
    """The plan of the chosen one is exact. The length of a URL's file is known from its header alone."""
    model, choices = models.read(chosen), list(models.sets)
    if not chosen.num_bytes:
        chosen = replace(chosen, num_bytes=model.file_bytes)
        choices = [chosen]
    return make_offers(facts, model, chosen, choices, question.wishes, abilities, experience)


def _answered(
    models: _Models,
    offers: Sequence[Offer],
    question: Question,
    facts: MachineFacts,
    abilities: EngineAbilities,
    experience: Experience,
) -> Planned:
    exact = next(offer for offer in offers if not offer.plan.is_estimate)
    plan = replace(with_rejected(offers, exact), quantization=exact.offered.quantization)
    plan = replace(plan, notes=(*plan.notes, f"fetch it first: `ktdesk pull {plan.source}`"))
    if question.why_not is None:
        return Planned(plan, None, tuple(offers))
    other = _named_offer(offers, question.why_not)
    if other is not None:
        return Planned(plan, Rejected(other.offered.quantization, compared(other.plan, plan)), tuple(offers))
    assert models.last is not None, "there is a plan of it"
    why = compared_with(facts, models.last, question.wishes, abilities, plan, question.why_not, experience)
    return Planned(plan, why, tuple(offers))


def offered_sets(
    http: Http, name: HubName, settings: Settings, quantization: str | None, wished: Sequence[str]
) -> tuple[list[GgufSet], GgufSet | None]:
    """All that there is, and that which was named. Of a URL there is one."""
    if not isinstance(name, RepositoryName):
        only = url_set(name.url)
        return [only], only
    similar = [each.id for profile in catalogue(settings).values() for each in profile.repositories]
    repository = find_repository(http, sources(wished), name.id, name.revision, similar)
    sets = repository_sets(name.id, repository.files)
    quantization = quantization or name.quantization
    if name.path is not None:
        return sets, set_with(sets, name.path, name.id)
    return sets, None if quantization is None else named_set(sets, quantization, name.id)


def _offered(each: GgufSet) -> Offered:
    return Offered(each.quantization, each.num_bytes, len(each.files))


def _model(http: Http, each: GgufSet, name: HubName) -> PlannedModel:
    """From the headers of the files. Its source is what `pull` and `chat` know it by."""
    progress = Progress()
    try:
        with tempfile.TemporaryDirectory(prefix="ktdesk-headers-") as folder:
            model = model_of_file(fetch_headers(http, each.files, Path(folder), progress).path)
    finally:
        progress.erase()
    source = f"{name.id}:{each.quantization}" if isinstance(name, RepositoryName) else str(name)
    return replace(model, source=source)


def _named_offer(offers: Sequence[Offer], name: str) -> Offer | None:
    return next((offer for offer in offers if offer.offered.quantization.lower() == name.lower()), None)
