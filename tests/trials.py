"""Setups without the work: a trial that only says what one would say, and a machine that was measured before."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path

from ktdesk_engine.benchmark.kernel_shares import KernelShare
from ktdesk_wizard.errors import TrialError
from ktdesk_wizard.plan.corrections import FORMULAS
from ktdesk_wizard.plan.model import model_of_file
from ktdesk_wizard.probe.machine_facts import MachineFacts
from ktdesk_wizard.probe.measurement import Measurement, machine_key, save_measurement
from ktdesk_wizard.probe.probe import probe
from ktdesk_wizard.prove.run import MeasuredRun, MemorySample, SpeedSample, engine_build
from ktdesk_wizard.setup import trial
from ktdesk_wizard.setup.messages import Message, Part, Task
from ktdesk_wizard.setup.trials import Facts, Trials


def measured_machine(data_folder: Path) -> None:
    save_measurement(measurement_of(probe(data_folder / "models")), data_folder)


def measurement_of(facts: MachineFacts) -> Measurement:
    shares = tuple(KernelShare(kind, "Q8_0", 0.2) for kind in ("experts", "matrix", "attention"))
    return Measurement(machine_key(facts), "2026-01-02 03:04", 2e10, 1e12, None, shares)


class FakeTrial:
    """Every part of it works at once."""

    def __init__(self, task: Task) -> None:
        self._task = task

    def wait_for(self, part: Part, advance: Callable[[Facts], None] = lambda facts: None) -> Facts:
        if part == "load":
            advance({"done": 1, "total": 2, "note": "packing"})
        return {
            "rehearse": {"num_tensors": 3, "num_kinds": 2, "panel_bytes": 1, "cache_bytes": 1},
            "load": {"seconds": 0.5},
            "smoke": {"text": "Paris", "num_tokens": 2, "is_like_words": True},
            "prove": {} if part != "prove" else asdict(run_of(Path(self._task.path), Path(self._task.data_folder))),
        }[part]

    def kill(self) -> None: ...

    def close(self) -> None: ...


class FakeTrials(Trials):
    def __init__(self) -> None:
        super().__init__()
        self.tasks: list[Task] = []
        """Of those that were begun."""

    def begin(self, task: Task) -> FakeTrial:  # type: ignore[override]
        self.tasks.append(task)
        return FakeTrial(task)


class LocalTrials(Trials):
    """The real work, in this process: where tests make the probes small."""

    def begin(self, task: Task) -> LocalTrial:  # type: ignore[override]
        return LocalTrial(task)


class LocalTrial(FakeTrial):
    def __init__(self, task: Task) -> None:
        super().__init__(task)
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            trial.run(task)
        self._messages: Iterator[Message | None] = map(Message.from_line, out.getvalue().splitlines())

    def wait_for(self, part: Part, advance: Callable[[Facts], None] = lambda facts: None) -> Facts:
        for message in self._messages:
            assert message is not None
            if message.kind == "failed":
                raise TrialError(str(message.facts["error"]))
            if message.kind == "done" and message.part == part:
                return message.facts
        raise TrialError("it ended")


def run_of(path: Path, data_folder: Path) -> MeasuredRun:
    facts = probe(data_folder / "models")
    return MeasuredRun(
        date="2026-01-02 03:04:05",
        machine=machine_key(facts),
        build=engine_build(),
        formulas=FORMULAS,
        model=model_of_file(path).fingerprint,
        title="a model",
        compute="int8",
        isa=facts.cpu.isa.value or "scalar",
        num_threads=facts.cpu.num_threads.value or 1,
        cache_type="f16",
        speeds=(SpeedSample("decode", 8, 0, 90.0, 2e10, 1e12, None, 100.0),),
        memory=MemorySample(10**9, 10**9),
    )
