"""Setups: every step tells what it does, a kill at any of them costs nothing, and nothing is done twice."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from benchmarks import use_small_probes
from trials import FakeTrial, FakeTrials, LocalTrials, measured_machine, measurement_of

from ktdesk_engine.backends.cuda.availability import Installed
from ktdesk_engine.errors import ModelFileError
from ktdesk_wizard.errors import (
    CancelledError,
    DoesNotFitError,
    FetchError,
    HomeFolderError,
    NotConfirmedError,
    RefusedError,
    TrialError,
    TrialMemoryError,
    WishError,
)
from ktdesk_wizard.plan.corrections import NO_CORRECTIONS, conditions_of, corrections_for
from ktdesk_wizard.plan.model import model_of_file
from ktdesk_wizard.plan.plan import GpuPart
from ktdesk_wizard.plan.planner import make_plan
from ktdesk_wizard.plan.wishes import Wishes
from ktdesk_wizard.probe.measurement import save_measurement
from ktdesk_wizard.probe.probe import probe
from ktdesk_wizard.prove.run import engine_build
from ktdesk_wizard.prove.store import load_runs
from ktdesk_wizard.setup import work
from ktdesk_wizard.setup.advice import advice_of
from ktdesk_wizard.setup.flow import Listener, Setup
from ktdesk_wizard.setup.journal import unfinished
from ktdesk_wizard.setup.messages import Task
from ktdesk_wizard.setup.sources import FileSource
from ktdesk_wizard.setup.step import STEPS, Step, StepName
from ktdesk_wizard.setup.trials import Trials
from ktdesk_wizard.setup.wanted import Wanted

ModelNamed = Callable[[str], Path]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    folder = tmp_path / "home"
    measured_machine(folder)
    return folder


@pytest.fixture
def model(tiny_model: ModelNamed) -> Path:
    return tiny_model("qwen3moe")


def setup_of(
    model: Path,
    home: Path,
    listener: Listener = lambda step: None,
    trials: Trials | None = None,
    wanted: Wanted | None = None,
) -> Setup:
    wanted = wanted or Wanted(str(model), is_confirmed=True)
    return Setup(wanted, FileSource(model), home, listener, trials or FakeTrials())


def test_every_step_runs_in_order_and_ends_done_with_a_line(model: Path, home: Path) -> None:
    seen: list[Step] = []
    setup = setup_of(model, home, seen.append)
    assert [step.state for step in setup.steps] == ["waiting"] * len(STEPS)
    outcome = setup.run()
    assert [step.name for step in seen if step.state == "done"] == list(STEPS)
    assert all(step.result and step.failure is None for step in setup.steps)
    (advance,) = (step.advance for step in seen if step.advance is not None)
    assert (advance.share, advance.unit, advance.note) == (0.5, "bytes", "packing")
    assert outcome.command[:3] == ("ktdesk", "chat", str(model))
    assert outcome.answer == "Paris"
    assert [line.error for line in outcome.compared] == pytest.approx([0, 1 / 9], abs=1e-9)
    assert json.loads(outcome.kept.read_text())["run"]["speeds"][0]["tok_s"] == 90
    assert load_runs(home) == (outcome.run,)
    assert [path.suffixes for path in outcome.kept.parent.iterdir()] == [outcome.kept.suffixes]


def test_a_model_is_really_loaded_asked_and_measured(model: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_small_probes(monkeypatch)
    setup = setup_of(model, home, trials=LocalTrials())
    outcome = setup.run()
    names = [line.name for line in outcome.compared]
    assert names[0] == "memory"
    assert [name.split()[0] for name in names[1:]] == ["prefill", "decode"]
    assert setup.step("smoke").result.startswith("it answered")
    assert load_runs(home) == (outcome.run,)


def on_a_card(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plans use one, as on a machine that has it."""
    part = GpuPart(0, 0, 2, 5, 48)
    monkeypatch.setattr(work, "usable_cards", lambda *facts: ([object()], []))
    monkeypatch.setattr(work, "make_plan", lambda *facts: replace(make_plan(*facts), gpu_parts=(part,)))


def test_where_the_plan_uses_a_card_it_is_tried_with_the_options_of_its_command(
    model: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_a_card(monkeypatch)
    rules = '[{"match": "_exps", "place": "cpu"}]'
    wishes = Wishes(devices="gpu", max_gpu_bytes=2**30, placement="mine", placement_rules=rules)
    trials = FakeTrials()
    setup_of(model, home, trials=trials, wanted=Wanted(str(model), wishes, is_confirmed=True)).run()
    assert [task.is_rehearsal for task in trials.tasks] == [True, False]
    for config in (task.config for task in trials.tasks):
        assert (config.accelerator, config.accelerator_bytes) == ("cuda", 2**30)
        assert [(rule.match, rule.place) for rule in config.placement_rules] == [("_exps", "cpu")]


class OnAThread(LocalTrials):
    """As on a card, on the accelerator that is a thread."""

    def begin(self, task: Task) -> FakeTrial:  # type: ignore[override]
        assert task.accelerator == "cuda"
        return super().begin(replace(task, accelerator="host-thread"))


def test_a_run_on_an_accelerator_is_kept_as_such_and_corrects_no_plan_of_the_processor(
    model: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_small_probes(monkeypatch)
    on_a_card(monkeypatch)
    wanted = Wanted(str(model), Wishes(devices="gpu"), is_confirmed=True)
    outcome = setup_of(model, home, trials=OnAThread(), wanted=wanted).run()
    assert outcome.answer
    assert outcome.run.accelerator == "host-thread"
    assert load_runs(home) == (outcome.run,)
    facts = probe(home / "models")
    conditions = conditions_of(facts, Wishes(), engine_build())
    assert corrections_for(model_of_file(model), load_runs(home), conditions) == NO_CORRECTIONS


def test_a_setup_for_a_card_that_is_not_there_is_refused_in_one_line(model: Path, home: Path) -> None:
    setup = setup_of(model, home, wanted=Wanted(str(model), Wishes(devices="gpu"), is_confirmed=True))
    with pytest.raises(WishError, match=r"a card is asked for, but no .* card .*: leave --device gpu out to set"):
        setup.run()
    assert setup.step("measure").state == "waiting"  # before anything takes time


def test_a_rehearsal_for_a_card_looks_whether_the_engine_can_use_it(
    model: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ktdesk_wizard.setup.rehearsal.look", lambda: Installed(None))
    task = Task(str(model), str(home), 64, "f16", "auto", 1, is_rehearsal=True, accelerator="cuda")
    with pytest.raises(TrialError, match="accelerator cuda: no NVIDIA driver is here"):
        LocalTrials().begin(task).wait_for("rehearse")


def test_a_rehearsal_and_its_process_are_real(model: Path, home: Path) -> None:
    trials = Trials()
    task = Task(str(model), str(home), 64, "f16", "auto", 1, is_rehearsal=True)
    found = trials.begin(task).wait_for("rehearse")
    assert found["num_tensors"] > 10
    assert found["cache_bytes"] > 0
    with pytest.raises(TrialError, match="ended with exit code 0"):
        trials.begin(task).wait_for("load")
    process = trials.begin(replace(task, is_rehearsal=False))
    process.kill()
    with pytest.raises(TrialMemoryError, match="killed"):
        process.wait_for("load")
    trials.end()


def test_a_rehearsal_refuses_what_loading_would(model: Path, home: Path) -> None:
    """A cache whose blocks do not fit the heads, and one that no machine has room for."""
    trials = LocalTrials()
    task = Task(str(model), str(home), 64, "f16", "auto", 1, is_rehearsal=True)
    with pytest.raises(TrialError, match="refused by the system"):
        trials.begin(replace(task, context=2**50)).wait_for("rehearse")
    with pytest.raises(TrialError, match="no such file"):
        trials.begin(replace(task, path="absent.gguf")).wait_for("rehearse")


NOTED = {"rehearse": {"rehearse"}, "confirm": {"rehearse", "confirm"}}
NOTED |= dict.fromkeys(("pull", "load", "smoke"), NOTED["confirm"])
NOTED |= dict.fromkeys(("prove", "save"), NOTED["confirm"] | {"load", "smoke", "prove"})
"""What a setup need not do again that was killed when this step was done."""


def killed_at(model: Path, home: Path, name: str, state: str) -> int:
    """What the process ended with."""

    def listener(step: Step) -> None:
        if (step.name, step.state) == (name, state):
            os.kill(os.getpid(), signal.SIGKILL)

    process = multiprocessing.get_context("fork").Process(target=lambda: setup_of(model, home, listener).run())
    process.start()
    process.join()
    assert process.exitcode is not None
    return process.exitcode


@pytest.mark.parametrize("state", ["running", "done"])
@pytest.mark.parametrize("name", STEPS)
def test_killed_at_any_step_it_goes_on_where_it_was(model: Path, home: Path, name: StepName, state: str) -> None:
    assert killed_at(model, home, name, state) == -signal.SIGKILL
    trials = FakeTrials()
    setup = setup_of(model, home, trials=trials)
    setup.run()
    last_done = name if state == "done" else STEPS[max(STEPS.index(name) - 1, 0)]
    noted = set() if (name, state) == ("save", "done") else NOTED.get(last_done, set())
    before = {step.name for step in setup.steps if step.is_from_before}
    assert before == {"measure", "pull"} | noted
    assert len(trials.tasks) == ("rehearse" not in before) + ("load" not in before)
    assert len(load_runs(home)) == 1


def test_the_context_that_was_confirmed_stays_though_memory_is_less_now(
    model: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop_at_load(step: Step) -> None:
        if step.name == "load":
            raise KeyboardInterrupt

    first = setup_of(model, home, stop_at_load)
    with pytest.raises(KeyboardInterrupt):
        first.run()
    assert first.work.plan is not None
    monkeypatch.setattr("ktdesk_wizard.plan.planner.decide_context", lambda wish, *_: wish or 64)
    second = setup_of(model, home)
    assert second.run().plan.context == first.work.plan.context
    assert second.step("confirm").is_from_before


def test_the_question_waits_for_an_answer_from_any_thread(model: Path, home: Path) -> None:
    asked = threading.Event()

    def listener(step: Step) -> None:
        if step.state == "asking":
            assert "memory?" in step.result
            asked.set()

    setup = setup_of(model, home, listener, wanted=Wanted(str(model)))
    outcomes: list[object] = []
    thread = threading.Thread(target=lambda: outcomes.append(setup.run()))
    thread.start()
    assert asked.wait(60)
    setup.answer(True)
    thread.join(60)
    assert len(outcomes) == 1


def test_a_no_ends_it_and_nothing_was_loaded(model: Path, home: Path) -> None:
    setup = setup_of(model, home, wanted=Wanted(str(model)))
    setup._listener = lambda step: setup.answer(False) if step.state == "asking" else None
    with pytest.raises(NotConfirmedError):
        setup.run()
    assert setup.step("confirm").state == "cancelled"
    assert setup.step("pull").state == "waiting"


@pytest.mark.parametrize("name", STEPS)
def test_it_can_be_stopped_at_every_step(model: Path, home: Path, name: str) -> None:
    def listener(step: Step) -> None:
        if step.name == name and step.state in ("running", "asking"):
            setup.cancel()

    setup = setup_of(model, home, listener, wanted=Wanted(str(model), is_confirmed=name != "confirm"))
    with pytest.raises(CancelledError):
        setup.run()
    states = {step.name: step.state for step in setup.steps}
    assert states[name] == "cancelled"  # type: ignore[index]
    assert setup_of(model, home).run().answer == "Paris"


def test_a_failed_step_tells_cause_and_what_to_do_and_is_tried_again(model: Path, home: Path) -> None:
    class NoMemory(FakeTrials):
        def begin(self, task: Task) -> FakeTrial:  # type: ignore[override]
            if not task.is_rehearsal:
                raise TrialMemoryError("out of memory")
            return super().begin(task)

    setup = setup_of(model, home, trials=NoMemory())
    with pytest.raises(TrialMemoryError):
        setup.run()
    failure = setup.step("load").failure
    assert failure is not None
    assert failure.cause == "out of memory"
    assert "--context" in failure.advice
    assert setup.step("smoke").state == "waiting"
    assert setup_of(model, home).run().answer == "Paris"


def test_what_does_not_fit_is_refused_and_force_overrules_it(model: Path, home: Path) -> None:
    wishes = Wishes(max_memory_bytes=1 << 20)
    setup = setup_of(model, home, wanted=Wanted(str(model), wishes, is_confirmed=True))
    with pytest.raises(DoesNotFitError) as caught:
        setup.run()
    failure, change = setup.step("plan").failure, caught.value.change
    assert failure is not None
    assert change is not None
    assert failure.advice == f"it would fit with {change}; --force goes on all the same"
    insisted = setup_of(model, home, wanted=Wanted(str(model), wishes, is_confirmed=True, insists=True))
    assert insisted.run().plan.verdict.kind == "does not fit"


def test_what_is_no_model_is_told_before_the_machine_is_looked_at(tmp_path: Path) -> None:
    (tmp_path / "text.gguf").write_text("no model")
    setup = setup_of(tmp_path / "text.gguf", tmp_path / "home")
    with pytest.raises(ModelFileError):
        setup.run()
    assert setup.step("find").state == "failed"
    assert setup.step("probe").state == "waiting"


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (RefusedError("no"), "HF_TOKEN"),
        (HomeFolderError("full"), "--home"),
        (WishError("no"), "--help"),
        (FetchError("gone"), "the same command goes on"),
    ],
)
def test_the_advice_is_that_of_the_error_where_it_says_more_than_the_step(error: Exception, words: str) -> None:
    assert words in advice_of("pull", error)


def test_why_the_plan_and_the_prediction_at_the_end_differ_is_said(model: Path, home: Path) -> None:
    """The machine was measured slower than the run found it."""
    measured = replace(measurement_of(probe(home)), read_bytes_s=5e9, busy_cores=1.5)
    save_measurement(measured, home)
    outcome = setup_of(model, home).run()
    busy, moment, learnt = outcome.remarks
    assert "1.5 cores" in busy
    assert "5.0 GB/s" in moment
    assert "20.0 GB/s" in moment
    assert "4.0 times" in learnt
    again = setup_of(model, home, wanted=Wanted(str(model), is_confirmed=True, starts_over=True)).run()
    assert len(again.remarks) == 1, "the kept measurement was raised"


def test_another_wish_is_another_setup_and_starting_over_forgets(model: Path, home: Path) -> None:
    def stop_at_load(step: Step) -> None:
        if step.name == "load":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        setup_of(model, home, stop_at_load).run()
    for wanted in (
        Wanted(str(model), Wishes(context=128), is_confirmed=True),
        Wanted(str(model), is_confirmed=True, starts_over=True),
    ):
        setup = setup_of(model, home, wanted=wanted)
        setup.run()
        assert not setup.step("rehearse").is_from_before


@pytest.mark.parametrize("text", ["", "{", "[]", '{"steps": {}}'])
def test_a_damaged_journal_is_as_none(model: Path, home: Path, text: str) -> None:
    setup = setup_of(model, home)
    path = setup.work._journal.path
    path.parent.mkdir(parents=True)
    path.write_text(text)
    again = setup_of(model, home)
    again.run()
    assert not again.step("rehearse").is_from_before


def test_it_stops_once_the_model_is_here_and_goes_on_or_is_handed_over(model: Path, home: Path) -> None:
    setup = setup_of(model, home)
    assert setup.fetch() == model
    assert [step.name for step in setup.steps if step.state == "waiting"] == ["load", "smoke", "prove", "save"]
    build = engine_build()
    assert [wanted.model for wanted in unfinished(home, build)] == [str(model)]
    assert setup.run().answer == "Paris"
    assert not unfinished(home, build)
    other = setup_of(model, home)
    other.fetch()
    other.hand_over()
    assert not unfinished(home, build)


def test_only_what_was_said_yes_to_is_unfinished(model: Path, home: Path) -> None:
    wishes = Wishes(context=64, max_memory_bytes=1 << 30)
    setup = setup_of(model, home, wanted=Wanted(str(model), wishes))
    setup._listener = lambda step: setup.answer(False) if step.state == "asking" else None
    with pytest.raises(NotConfirmedError):
        setup.run()
    (home / "setups" / "x.journal.json").write_text("[")
    assert not unfinished(home, engine_build())
    setup_of(model, home, wanted=Wanted(str(model), wishes, is_confirmed=True)).fetch()
    assert unfinished(home, engine_build()) == [Wanted(str(model), wishes)]
    assert not unfinished(home, "another build")
