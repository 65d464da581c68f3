"""The machines that ship: whole facts, and enough of them for a plan with speeds."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ktdesk_profiles.machines import machine_texts
from ktdesk_profiles.models import load_models
from ktdesk_wizard.errors import FactsError
from ktdesk_wizard.plan.catalogue import model_of_profile
from ktdesk_wizard.plan.planner import make_plan
from ktdesk_wizard.plan.quantization import requantized
from ktdesk_wizard.plan.wishes import EngineAbilities, Wishes
from ktdesk_wizard.probe.facts_json import read_machine

MACHINES = machine_texts()


@pytest.mark.parametrize("device", ["cpu", "gpu"])
@pytest.mark.parametrize("name", MACHINES)
def test_a_model_is_planned_on_each_with_speeds(name: str, device: str) -> None:
    origin, text = MACHINES[name]
    facts = read_machine(text, origin)
    model = requantized(model_of_profile(load_models()["olmoe-1b-7b"]), "Q4_K_M")
    plan = make_plan(facts, model, Wishes(devices=device), EngineAbilities(frozenset({"olmoe"}), True))  # type: ignore[arg-type]
    assert plan.verdict.kind == "fits"
    assert plan.decode.max_tok_s is not None
    assert plan.prefill.max_tok_s is not None
    assert bool(plan.gpu_parts) == (device == "gpu" and bool(facts.gpus.gpus))


def test_what_a_machine_does_not_say_is_unknown_and_what_it_must_say_is_missing() -> None:
    origin, text = MACHINES["laptop-16g"]
    facts = read_machine(text, origin)
    assert not facts.memory.read_bytes_s.is_known
    assert facts.memory.total_bytes.confidence == "given"
    with pytest.raises(FactsError, match=r"laptop-16g\.yaml: gpus: gpus is missing"):
        read_machine(text.replace("gpus: {gpus: []}", ""), origin)


def test_the_users_machines_override_those_that_ship(tmp_path: Path) -> None:
    (tmp_path / "laptop-16g.yaml").write_text("mine")
    assert machine_texts(tmp_path)["laptop-16g"] == (str(tmp_path / "laptop-16g.yaml"), "mine")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("cpu:\n  isa: avx2\n  nam: x\n", "m.yaml:3: cpu: unknown key 'nam'"),
        ('{"memory": {},\n "gpu": {}}', "m.yaml:2: unknown key 'gpu'"),
        (
            "numa: {nodes: []}\ngpus:\n  gpus:\n    - {index: 0}\n    - {nam: y}\n",
            "m.yaml:5: gpus: gpus[1]: unknown key",
        ),
    ],
)
def test_an_unknown_key_is_told_with_its_line(text: str, told: str) -> None:
    with pytest.raises(FactsError, match=re.escape(told)):
        read_machine(text, "m.yaml")
