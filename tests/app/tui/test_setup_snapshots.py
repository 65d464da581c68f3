"""Pictures of each step of the setup, on a machine that is only told of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

import pytest
from driving import FakeLink, shown, until
from pictures import SIZES, Compare, compare, settle
from planned_models import qwen3_30b
from textual.pilot import Pilot

from ktdesk.model_choices import ModelChoice, Outlook
from ktdesk.model_link import LinkState
from ktdesk.tui.setup.download_pane import DownloadPane
from ktdesk.tui.setup.load_pane import LoadPane
from ktdesk.tui.setup.machine import Machine, Measuring
from ktdesk.tui.setup.machine_pane import MachinePane
from ktdesk.tui.setup.machine_words import measuring_words
from ktdesk.tui.setup.plan_pane import PlanPane
from ktdesk.tui.setup.screen import SetupScreen
from ktdesk.what_if import WhatIf
from ktdesk_engine.benchmark.kernel_shares import KernelShare
from ktdesk_profiles.machines import machine_texts
from ktdesk_wizard.doctor.checks import CHECKS
from ktdesk_wizard.doctor.diagnosis import Case, examine
from ktdesk_wizard.errors import FetchError
from ktdesk_wizard.plan.offers import Offered
from ktdesk_wizard.plan.plan import (
    MEMORY,
    GpuPart,
    LedgerEntry,
    PlaceTotal,
    Plan,
    Prediction,
    Rejected,
    Verdict,
)
from ktdesk_wizard.plan.wishes import Wishes
from ktdesk_wizard.probe.fact import measured, reported
from ktdesk_wizard.probe.facts_json import read_machine
from ktdesk_wizard.probe.machine_facts import AmxFacts, DimmFacts, MachineFacts
from ktdesk_wizard.setup.step import Advance, Failure, FileAdvance, Step, StepName

GIB = 2**30
NOW = datetime(2026, 1, 2, tzinfo=timezone.utc)
MODEL = "unsloth/Qwen3-30B-A3B-GGUF"
CHOICES = [
    ModelChoice("demo", "demo", "SmolLM2 135M Instruct, 8 experts", 150 << 20),
    ModelChoice("here", "/models/mine.gguf", "mine.gguf", 9 * GIB, None, Path("/models/mine.gguf")),
    ModelChoice("partial", f"{MODEL}:Q4_K_M", f"{MODEL}:Q4_K_M", 17 * GIB),
    ModelChoice("catalogue", "olmoe-1b-7b", "OLMoE 1B 7B", None, 6.9),
    ModelChoice("catalogue", "qwen3-235b-a22b", "Qwen3 235B A22B", None, 235.1),
    ModelChoice("catalogue", "kimi-k2", "Kimi K2 and K2 Thinking", None, 1026.0),
    ModelChoice("catalogue", "new-one", "A model that nobody knows", None),
]
OUTLOOKS = {
    "demo": Outlook("fits", "it needs 0.9 GiB of the 201.0 GiB available", "Q8_0", 150 << 20, GIB, 8192, 310.0, 420.0),
    "/models/mine.gguf": "/models/mine.gguf: no GGUF file: it begins with 'no m'",
    "olmoe-1b-7b": Outlook("fits", "it needs 8.1 GiB", "Q8_0", 7 * GIB, 8 * GIB, 4096, 88.0, 124.0),
    "qwen3-235b-a22b": Outlook("fits", "it needs 142.0 GiB", "Q4_K_M", 132 * GIB, 142 * GIB, 40960, 9.1, 13.4),
    "kimi-k2": Outlook("does not fit", "it needs 240.0 GiB", "IQ1_S", 213 * GIB, 240 * GIB, 4096, 5.0, 8.0),
}  # fmt: skip
INSTEAD = (
    Rejected("a cache in q8_0", "half of the bytes, but answers change"),
    Rejected("Q8_0", "35.0 GiB of memory instead of 20.7; decode at 0.61 times the speed; more exact"),
    Rejected("Q2_K", "15.0 GiB of memory instead of 20.7; decode at 1.32 times the speed; less exact"),
)
FILES = tuple(
    FileAdvance(f"Qwen3-30B-A3B-Q4_K_M-0000{number}-of-00003.gguf", done, 6 * GIB)
    for number, done in ((1, 6 * GIB), (2, 4 * GIB), (3, 0))
)
FETCHING = Step("pull", "running", Advance(10 * GIB, 18 * GIB, "bytes", "112.4 MiB/s, 73 s left", FILES))


def facts() -> MachineFacts:
    """A workstation that was measured."""
    origin, text = machine_texts()["workstation-256g"]
    told = read_machine(text, origin)
    shares = tuple(KernelShare(kind, "Q4_K", 0.3) for kind in ("experts", "matrix", "attention"))
    lights = AmxFacts(*(reported(True, "the processor"),) * 3, measured(38.2e12, "measured"))
    cpu = replace(
        told.cpu, amx=lights, peak_ops_s=measured(9.1e12, ""), kernel_shares=measured(shares, "")
    )  # fmt: skip
    dimms = tuple(DimmFacts(f"DIMM {n}", 32 * GIB if n < 8 else 0, "DDR5", 4800, 5600) for n in range(10))
    memory = replace(told.memory, read_bytes_s=measured(241e9, ""), dimms=reported(dimms, "the firmware"))
    return replace(told, cpu=cpu, memory=memory, disk=replace(told.disk, free_bytes=reported(730 * GIB, "")))


@pytest.fixture(autouse=True)
def _a_told_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    def look(machine: Machine) -> None:
        machine.facts = facts()
        machine.findings = examine(Case(machine.facts, NOW, NOW), CHECKS)

    monkeypatch.setattr(Machine, "look", look)
    monkeypatch.setattr(Machine, "is_measured", True)
    monkeypatch.setattr("ktdesk.tui.setup.choosing._listed", lambda settings: ([], CHOICES))
    monkeypatch.setattr("ktdesk.model_outlook.outlook_or_problem", lambda choice, *_: OUTLOOKS.get(choice.name))


def check(
    snap_compare: Compare, size: tuple[int, int], show: Callable[[SetupScreen], None], link: FakeLink | None = None
) -> None:
    async def script(pilot: Pilot[None]) -> None:
        screen = pilot.app.screen
        assert isinstance(screen, SetupScreen)
        await until(pilot, lambda: "Processor" in shown(pilot.app))
        await settle(pilot)
        screen._title = MODEL
        show(screen)

    compare(snap_compare, link or FakeLink(), size, script, first_place="setup")


@SIZES
def test_machine(snap_compare: Compare, size: tuple[int, int]) -> None:
    check(snap_compare, size, lambda screen: None)


MEASURING = Measuring("each type of weights", 0.43, 13.0)


def test_a_machine_that_is_measured(snap_compare: Compare) -> None:
    def show(screen: SetupScreen) -> None:
        pane = screen.query_one(MachinePane)
        pane.show(facts(), screen._machine.findings, is_measuring=True)
        pane.show_measuring(MEASURING)
        pane.offer("the demo model")

    check(snap_compare, (80, 24), show)


@pytest.mark.parametrize("theme", ["ktdesk-dark", "ansi-dark"])
def test_a_plan_that_waits_for_the_machine(snap_compare: Compare, theme: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEXTUAL_THEME", theme)

    def show(screen: SetupScreen) -> None:
        pane = screen.query_one(PlanPane)
        pane.begin(MODEL)
        screen.go("plan")
        pane.accept()
        pane.show_state(measuring_words(MEASURING), waits_for_machine=True)

    check(snap_compare, (80, 24), show)


@SIZES
def test_models(snap_compare: Compare, size: tuple[int, int]) -> None:
    check(snap_compare, size, lambda screen: screen.go("models"))


@pytest.mark.parametrize("theme", ["ktdesk-dark", "ansi-dark"])
def test_models_without_colours(snap_compare: Compare, theme: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEXTUAL_THEME", theme)
    monkeypatch.setenv("NO_COLOR", "1")
    check(snap_compare, (80, 24), lambda screen: screen.go("models"))


class ToldWhatIf(WhatIf):
    """With numbers that stay as they are, whatever the planner learns."""

    def plan(self, wishes: Wishes, quantization: str | None = None) -> Plan:
        most = wishes.max_memory_bytes or 228 * GIB
        verdict = Verdict("fits", "it needs 20.7 GiB of the 228.0 GiB available", 0, None)
        if most < 20.7 * GIB:
            verdict = Verdict("does not fit", "it needs 20.7 GiB, 8.0 GiB are given", 12 * GIB, "a file of 6.1 GB")
        memory = [("routed experts", 15.6), ("cache, grouped-query", 3.8), ("attention", 0.5), ("runtime", 0.8)]
        ledger = [LedgerEntry(MEMORY, what, round(gib * GIB), "") for what, gib in memory]
        card = LedgerEntry("gpu 0", "layers 0 to 11", 38 * GIB, "")
        totals = (PlaceTotal(MEMORY, round(20.7 * GIB), most, most), PlaceTotal("gpu 0", 38 * GIB, 44 * GIB, 44 * GIB))
        speeds = [
            Prediction(what, mean, low, high, lane, (), "measured")
            for what, low, mean, high, lane in (
                ("prefill", 1180, 1511, 1940, "experts"),
                ("decode", 58, 81, 104, "memory"),
                ("deep", 31, 39, 48, "cache"),
            )
        ]
        parts = (GpuPart(0, 0, 11, 288, 1536),)
        return replace(
            super().plan(wishes, quantization), verdict=verdict, ledger=(*ledger, card), totals=totals, notes=(),
            prefill=speeds[0], decode=speeds[1], decode_deep=speeds[2], gpu_parts=parts, rejected=INSTEAD[:1],
        )  # fmt: skip

    def others(self, plan: Plan, wishes: Wishes) -> tuple[Rejected, ...]:
        return INSTEAD[1:]


def show_plan(screen: SetupScreen, wishes: Wishes) -> None:
    pane, what_if = screen.query_one(PlanPane), ToldWhatIf(facts(), qwen3_30b(), wishes)
    offered = tuple(Offered(name, size * GIB, 1) for name, size in (("Q8_0", 31), ("Q4_K", 17), ("Q2_K", 11)))
    pane.begin(MODEL)
    pane.show(what_if)
    pane.show(replace(what_if, offered=offered))
    pane.show_state("fetch 17.3 GiB, then load Qwen3 30B A3B with 19.9 GiB of memory?")
    screen.go("plan")


@SIZES
def test_plan(snap_compare: Compare, size: tuple[int, int]) -> None:
    check(snap_compare, size, lambda screen: show_plan(screen, Wishes()))


def test_a_plan_that_does_not_fit(snap_compare: Compare) -> None:
    check(snap_compare, (80, 24), lambda screen: show_plan(screen, Wishes(max_memory_bytes=8 * GIB)))


def show_download(screen: SetupScreen, *, is_paused: bool) -> None:
    screen.go("plan")
    screen.go("download")
    pane = screen.query_one(DownloadPane)
    screen.call_after_refresh(lambda: pane.show(MODEL, FETCHING, is_paused=is_paused))


@SIZES
def test_download(snap_compare: Compare, size: tuple[int, int]) -> None:
    check(snap_compare, size, lambda screen: show_download(screen, is_paused=False))


def test_a_paused_download(snap_compare: Compare) -> None:
    check(snap_compare, (80, 24), lambda screen: show_download(screen, is_paused=True))


def steps_of(running: StepName, advance: Advance) -> list[Step]:
    found = [Step("load", "done", result="in 12.4 s"), Step("smoke", "done", result="it answered 'Paris'")]
    return [*found, Step(running, "running", advance), Step("save")]


@SIZES
def test_load_and_measure(snap_compare: Compare, size: tuple[int, int]) -> None:
    def show(screen: SetupScreen) -> None:
        screen.go("load")
        pane, steps = screen.query_one(LoadPane), steps_of("prove", Advance(4, 9, "samples", "decode"))
        screen.call_after_refresh(lambda: pane.show_steps(MODEL, steps))

    check(snap_compare, size, show)


def test_a_server_that_loads(snap_compare: Compare) -> None:
    state = LinkState("loading", "Qwen3-30B-A3B-Q4_K_M", "http://127.0.0.1:1", "/models/q.gguf", 43.0)

    def show(screen: SetupScreen) -> None:
        screen.go("load")
        pane = screen.query_one(LoadPane)
        screen.call_after_refresh(lambda: pane.show_link(state))

    check(snap_compare, (80, 24), show, FakeLink(state))


@SIZES
def test_a_failure(snap_compare: Compare, size: tuple[int, int]) -> None:
    check(snap_compare, size, show_failure)


def test_a_failure_in_the_colours_of_the_terminal(snap_compare: Compare, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEXTUAL_THEME", "ansi-dark")
    check(snap_compare, (80, 24), show_failure)


def show_failure(screen: SetupScreen) -> None:
    from ktdesk.tui.setup.failing import failure_words, next_steps

    error = FetchError("no connection to huggingface.co: check the network, or try another --source")
    show_download(screen, is_paused=False)
    failure = Failure(str(error), "", error)
    screen._tell(failure_words(MODEL, "pull", failure), next_steps("pull", failure))
