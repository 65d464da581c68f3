"""What `ktdesk plan` does: facts, model and wishes together, and the plan that comes of them."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

from ktdesk import plan_text
from ktdesk.json_output import json_text
from ktdesk.model_paths import model_path
from ktdesk.settings import Settings
from ktdesk_wizard.plan.choose import why_not as compared_with
from ktdesk_wizard.plan.model import model_of_file
from ktdesk_wizard.plan.plan import Plan, Rejected
from ktdesk_wizard.plan.planner import make_plan
from ktdesk_wizard.plan.wishes import Wishes, engine_abilities
from ktdesk_wizard.probe.facts_json import read_what_if
from ktdesk_wizard.probe.machine_facts import MachineFacts
from ktdesk_wizard.probe.probe import probe


@dataclass(frozen=True)
class Planned:
    plan: Plan
    why_not: Rejected | None

    def as_json(self) -> str:
        facts = asdict(self.plan)
        if self.why_not is not None:
            facts["why_not"] = asdict(self.why_not)
        return json_text(facts)

    def as_text(self, *, explain: bool) -> str:
        text = plan_text.as_text(self.plan, explain=explain)
        if self.why_not is None:
            return text
        return f"{text}\n\n{self.why_not.what}: {self.why_not.why}."


def planned(
    model: str, wishes: Wishes, settings: Settings, *, what_if: str | None = None, why_not: str | None = None
) -> Planned:
    facts = _facts(settings, what_if)
    abilities = engine_abilities()
    planned_model = model_of_file(model_path(model, settings))
    plan = make_plan(facts, planned_model, wishes, abilities)
    other = None if why_not is None else compared_with(facts, planned_model, wishes, abilities, plan, why_not)
    return Planned(plan, other)


def _facts(settings: Settings, what_if: str | None) -> MachineFacts:
    facts = probe((settings.data_folder / "models").absolute())
    return facts if what_if is None else read_what_if(Path(what_if), facts)
