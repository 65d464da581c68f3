"""Measured runs correct plans: of the same model exactly, of others roughly, of other machines not at all."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from captured import captured_facts
from planned_models import CPU_ONLY, plan, qwen3_30b

from ktdesk_wizard.plan.corrections import (
    FORMULAS,
    NO_CORRECTIONS,
    NO_EXPERIENCE,
    Corrections,
    Experience,
    conditions_of,
    corrections_for,
)
from ktdesk_wizard.plan.plan import MEMORY
from ktdesk_wizard.plan.planner import make_plan
from ktdesk_wizard.plan.quantization import requantized
from ktdesk_wizard.plan.wishes import Wishes
from ktdesk_wizard.probe.machine_facts import MachineFacts
from ktdesk_wizard.prove.compare import busy_run_note
from ktdesk_wizard.prove.run import MeasuredRun, MemorySample, Phase, SpeedSample
from ktdesk_wizard.prove.store import FOLDER, MAX_KEPT, load_runs, save_run

BUILD = "1.0-abc"
MODEL = qwen3_30b()
WISHES = Wishes(context=8192)


@pytest.fixture
def facts(tmp_path: Path) -> MachineFacts:
    return captured_facts("desktop", tmp_path / "tree")


def speed(phase: Phase, factor: float, depth: int = 0) -> SpeedSample:
    """A plan said 100 tok/s."""
    return SpeedSample(phase, 512, depth, 100 * factor, 7e10, 1e12, None, 100.0)


def run_of(facts: MachineFacts, *speeds: SpeedSample, missing_bytes: int = 0) -> MeasuredRun:
    conditions = conditions_of(facts, WISHES, BUILD)
    return MeasuredRun(
        date="2026-01-02 03:04:05",
        machine=conditions.machine,
        build=conditions.build,
        formulas=FORMULAS,
        model=MODEL.fingerprint,
        title="a model",
        compute=conditions.compute,
        isa=conditions.isa,
        num_threads=conditions.num_threads,
        cache_type="f16",
        speeds=speeds,
        memory=MemorySample(10**9 + missing_bytes, 10**9),
    )


def corrections(facts: MachineFacts, *runs: MeasuredRun) -> Corrections:
    return corrections_for(MODEL, runs, conditions_of(facts, WISHES, BUILD))


def test_a_run_of_the_same_model_moves_the_plan_by_its_factor_and_narrows_it(facts: MachineFacts) -> None:
    before = plan(facts, MODEL, context=8192)
    known = corrections(facts, run_of(facts, speed("prefill", 1.2), speed("decode", 0.9)))
    after = make_plan(facts, MODEL, WISHES, CPU_ONLY, known)
    for old, new, factor in ((before.prefill, after.prefill, 1.2), (before.decode, after.decode, 0.9)):
        assert old.tok_s is not None
        assert new.tok_s == pytest.approx(old.tok_s * factor)
        assert new.min_tok_s == pytest.approx(new.tok_s / 1.05)
        assert new.max_tok_s == pytest.approx(new.tok_s * 1.05)
        assert new.correction is not None
        assert "1 run of this model" in new.correction


def test_runs_of_another_file_of_the_model_count_more_than_those_of_others(facts: MachineFacts) -> None:
    """As the catalogue has no file, and a hub others."""
    other = replace(run_of(facts, speed("decode", 0.5)), model="another")
    file = replace(run_of(facts, speed("decode", 0.8)), model="a file", shape=MODEL.shape)
    known = Experience((other, file), BUILD)
    for model in (MODEL, requantized(MODEL, "Q8_0")):
        before, after = (
            make_plan(facts, model, WISHES, CPU_ONLY, what.about(model, facts, WISHES)).decode
            for what in (NO_EXPERIENCE, known)
        )
        assert before.tok_s is not None
        assert after.tok_s == pytest.approx(before.tok_s * 0.8)
        assert after.correction is not None
        assert "in another quantization" in after.correction


def test_the_median_of_the_last_runs_counts_and_their_spread_is_told(facts: MachineFacts) -> None:
    runs = [run_of(facts, speed("decode", factor)) for factor in (9.0, 0.8, 1.0, 1.1, 1.0, 1.2)]
    known = corrections(facts, *runs)
    assert known.factor("decode", 0) == pytest.approx(1.0)
    predicted = known.corrected(plan(facts, MODEL, context=8192).decode, "decode", 512)
    assert predicted.tok_s is not None
    assert predicted.min_tok_s == pytest.approx(predicted.tok_s / 1.25)


def test_the_nearest_depth_counts(facts: MachineFacts) -> None:
    known = corrections(facts, run_of(facts, speed("decode", 1.0, 0), speed("decode", 0.5, 4096)))
    assert known.factor("decode", 10) == pytest.approx(1.0)
    assert known.factor("decode", 8192) == pytest.approx(0.5)


def test_a_long_prompt_in_larger_pieces_does_not_count(facts: MachineFacts) -> None:
    long = replace(speed("prefill", 1.4), num_tokens=2048)
    assert corrections(facts, run_of(facts, long)).factor("prefill", 0) is None
    both = corrections(facts, run_of(facts, long, speed("prefill", 0.9)))
    assert both.factor("prefill", 0) == pytest.approx(0.9)


def test_other_models_correct_too_but_say_less(facts: MachineFacts) -> None:
    other = replace(run_of(facts, speed("decode", 0.7), missing_bytes=5), model="another")
    known = corrections(facts, other)
    predicted = known.corrected(plan(facts, MODEL, context=8192).decode, "decode", 512)
    assert predicted.correction is not None
    assert "of other models" in predicted.correction
    assert predicted.tok_s is not None
    assert predicted.max_tok_s == pytest.approx(predicted.tok_s * 1.25)
    assert known.memory_bytes() is None


@pytest.mark.parametrize(
    "change", [{"machine": "x"}, {"build": "2.0"}, {"formulas": 0}, {"compute": "mixed"}, {"num_threads": 1}]
)
def test_runs_of_another_machine_build_or_setting_do_not_count(facts: MachineFacts, change: dict[str, object]) -> None:
    run = replace(run_of(facts, speed("decode", 0.7)), **change)  # type: ignore[arg-type]
    assert corrections(facts, run) == NO_CORRECTIONS


def test_memory_is_corrected_by_what_was_missing_and_the_ledger_says_so(facts: MachineFacts) -> None:
    known = corrections(facts, *(run_of(facts, missing_bytes=number) for number in (7, 9, 50)))
    before, after = (make_plan(facts, MODEL, WISHES, CPU_ONLY, c) for c in (NO_CORRECTIONS, known))
    assert after.bytes_of(MEMORY) == before.bytes_of(MEMORY) + 9
    assert after.ledger[-1].what == "measured difference"
    assert "3 runs" in after.ledger[-1].formula


def test_runs_are_kept_in_order_and_come_back_whole(facts: MachineFacts, tmp_path: Path) -> None:
    first = run_of(facts, speed("decode", 0.7))
    second = replace(first, date="2026-01-02 03:04:06", memory=None)
    for run in (first, first, second):
        save_run(run, tmp_path)
    assert load_runs(tmp_path) == (first, first, second)
    assert all(path.suffix == ".json" for path in (tmp_path / FOLDER).iterdir())


def test_only_the_last_runs_are_kept(facts: MachineFacts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ktdesk_wizard.prove.store.MAX_KEPT", 2)
    assert MAX_KEPT > 2
    runs = [replace(run_of(facts), date=f"2026-01-02 03:04:0{second}") for second in range(4)]
    for run in runs:
        save_run(run, tmp_path)
    assert load_runs(tmp_path) == tuple(runs[2:])


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("{", "["),
        ('"decode"', '"sleep"'),
        ("70.0", "-1.0"),
        ('"peak_bytes": 1', '"peak_bytes": "x"'),
        ('"num_tokens": 512', '"num_tokens": -512'),
    ],
)
def test_a_damaged_run_is_left_out(facts: MachineFacts, tmp_path: Path, old: str, new: str) -> None:
    path = save_run(run_of(facts, speed("decode", 0.7)), tmp_path)
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    save_run(run_of(facts), tmp_path)
    assert load_runs(tmp_path) == (run_of(facts),)


def test_what_was_measured_beside_others_counts_only_where_nothing_was_measured_in_quiet(facts: MachineFacts) -> None:
    quiet, busy = (run_of(facts, speed("prefill", factor)) for factor in (1.1, 0.4))
    busy = replace(busy, busy_cores=busy.num_threads / 2)
    assert (quiet.was_busy, busy.was_busy) == (False, True)
    for runs, factor in (((busy,), 0.4), ((quiet, busy), 1.1), ((busy, busy, quiet), 1.1)):
        assert corrections(facts, *runs).factor("prefill", 0) == pytest.approx(factor)
    note = busy_run_note(busy)
    assert note is not None
    assert f"of {busy.num_threads} cores" in note
    assert busy_run_note(quiet) is None
