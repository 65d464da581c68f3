"""What the steps of a setup do. A step returns what there is to say of it; what outlives a kill it notes itself."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from ktdesk_wizard.errors import (
    DoesNotFitError,
    HomeFolderError,
    TrialError,
    WishError,
)
from ktdesk_wizard.plan.cards import missing_card, usable_cards
from ktdesk_wizard.plan.corrections import NO_CORRECTIONS, conditions_of, corrections_for
from ktdesk_wizard.plan.model import PlannedModel, model_of_file
from ktdesk_wizard.plan.plan import MEMORY, Plan, Rejected
from ktdesk_wizard.plan.planner import make_plan
from ktdesk_wizard.plan.wishes import engine_abilities
from ktdesk_wizard.probe.machine_facts import MachineFacts
from ktdesk_wizard.probe.measurement import (
    busy_note,
    check_can_be_kept,
    is_measured,
    measure,
    raise_ceilings,
    save_measurement,
    with_measurement,
)
from ktdesk_wizard.probe.measuring_turn import measuring_turn
from ktdesk_wizard.probe.probe import probe
from ktdesk_wizard.prove.compare import Compared, busy_run_note, compared, moment_note
from ktdesk_wizard.prove.run import MeasuredRun, engine_build
from ktdesk_wizard.prove.store import load_runs, run_from_facts, save_run
from ktdesk_wizard.setup.journal import FOLDER, Journal
from ktdesk_wizard.setup.messages import Part, Task
from ktdesk_wizard.setup.outcome import Outcome
from ktdesk_wizard.setup.sources import ModelSource
from ktdesk_wizard.setup.step import StepName, Unit
from ktdesk_wizard.setup.trials import Facts, Trial, Trials
from ktdesk_wizard.setup.wanted import Wanted
from ktdesk_wizard.setup.watcher import StepReport, Watcher

GIB = 2**30
MAX_SHOWN = 60


@dataclass(frozen=True)
class Done:
    result: str
    is_from_before: bool = False


MeasureMachine = Callable[[MachineFacts], None]
"""Measures this machine and keeps it in the data folder, or leaves it at that it is not measured."""


class Work:
    def __init__(
        self,
        wanted: Wanted,
        source: ModelSource,
        data_folder: Path,
        journal: Journal,
        trials: Trials,
        watcher: Watcher,
        measure_machine: MeasureMachine | None = None,
    ) -> None:
        """measure_machine: None: as `ktdesk probe --measure` does."""
        self._wanted, self._source, self._data_folder = wanted, source, data_folder
        self._journal, self._trials, self._watcher = journal, trials, watcher
        self._measure_machine = measure_machine or self._measure_and_keep
        self.facts: MachineFacts | None = None
        self.model: PlannedModel | None = None
        self.plan: Plan | None = None
        self.header: Path | None = None
        self.path: Path | None = None
        self.run: MeasuredRun | None = None
        self.compared: tuple[Compared, ...] = ()
        self.answer = ""
        self.kept: Path | None = None
        self.remarks: list[str] = []
        self._trial: Trial | None = None
        self._tried: dict[str, Any] = {}
        """What came of each part."""
        self._key: dict[str, Any] = {}

    def do(self, name: StepName) -> Done:
        steps: dict[StepName, Callable[[], Done]] = {
            "find": self._find,
            "probe": self._probe,
            "measure": self._measure,
            "plan": self._plan,
            "rehearse": self._rehearse,
            "confirm": self._confirm,
            "pull": self._pull,
            "load": self._load,
            "smoke": self._smoke,
            "prove": self._prove,
            "save": self._save,
        }
        return steps[name]()

    def forget(self) -> None:
        """What the journal has."""
        self._journal.remove()

    def outcome(self) -> Outcome:
        assert self.path is not None
        assert self.plan is not None
        assert self.run is not None
        assert self.kept is not None
        return Outcome(
            self.path, self.plan, self.run, self.compared, self.answer, self.command, self.kept, tuple(self.remarks)
        )

    @property
    def is_confirmed(self) -> bool:
        """By an earlier run."""
        return self._journal.note_of("confirm") is not None

    @property
    def command(self) -> tuple[str, ...]:
        """To chat."""
        assert self.plan is not None
        return self.plan.command

    def _find(self) -> Done:
        return Done(self._source.find(StepReport(self._watcher, "find")))

    def _probe(self) -> Done:
        self.facts = facts = probe(self._data_folder / "models")
        usable, refused = usable_cards(facts, self._wanted.wishes, engine_abilities())
        if not usable:
            self._need_no_card(refused)
        cpu, memory = facts.cpu, facts.memory
        available = "unknown" if memory.available_bytes.value is None else _gib(memory.available_bytes.value)
        cards = f", {len(facts.gpus.gpus)} cards" if facts.gpus.gpus else ""
        cards += f" of which card {usable[0][0].index} is used" if usable and len(facts.gpus.gpus) > 1 else ""
        name = cpu.name.value or "a processor that does not tell its name"
        return Done(f"{name}, {cpu.num_threads.value} threads, {cpu.isa.value}; {available} available{cards}")

    def _need_no_card(self, refused: Sequence[Rejected]) -> None:
        """WishError where one was asked for. refused: those that there are."""
        assert self.facts is not None
        if self._wanted.wishes.devices == "gpu":
            raise WishError(
                f"{missing_card(self.facts, refused)}: leave --device gpu out to set the model up for the processor"
            )

    def _measure(self) -> Done:
        """What was measured of this machine is good until it is measured again."""
        assert self.facts is not None
        known = with_measurement(self.facts, self._data_folder)
        is_old = is_measured(known) and not self._wanted.measures_again
        if not is_old:
            self._measure_machine(self.facts)
            known = with_measurement(self.facts, self._data_folder)
        self.facts = known
        read, peak = known.memory.read_bytes_s, known.cpu.peak_ops_s
        if read.value is None or peak.value is None:
            return Done("not measured: speeds are unknown, or reckoned from what its modules could do")
        busy = busy_note(known)
        if busy is not None:
            self.remarks.append(busy)
        told = f"reads {read.value / 1e9:.1f} GB/s, multiplies {peak.value / 1e12:.2f} T a second"
        return Done(f"{told}{'; see the note below' if busy else ''}", is_old)

    def _measured_so_far(self, share: float) -> None:
        self._watcher.advance("measure", round(100 * share), 100, "samples")

    def _measure_and_keep(self, facts: MachineFacts) -> None:
        check_can_be_kept(self._data_folder)
        with measuring_turn(self._data_folder, self._waits_to_measure) as is_done:
            if not is_done or not is_measured(with_measurement(facts, self._data_folder)):
                save_measurement(measure(facts, advance=self._measured_so_far), self._data_folder)

    def _waits_to_measure(self) -> None:
        self._watcher.advance("measure", 0, 0, "samples", "waiting for another ktdesk that measures this machine")

    def _plan(self) -> Done:
        """With the context of the interrupted setup, where there was one: what was confirmed stays."""
        assert self.facts is not None
        self.header = self._source.header(StepReport(self._watcher, "plan"))
        self.model = replace(model_of_file(self.header), source=self._source.name)
        before = self._journal.note_of("plan")
        wishes = self._wanted.wishes
        if isinstance(before, dict) and before.get("model") == self.model.fingerprint:
            wishes = replace(wishes, context=before["context"])
        runs = load_runs(self._data_folder)
        corrections = corrections_for(self.model, runs, conditions_of(self.facts, wishes, engine_build()))
        self.plan = plan = make_plan(self.facts, self.model, wishes, engine_abilities(), corrections)
        if not plan.uses_card:
            self._need_no_card([each for each in plan.rejected if each.what.startswith("card ")])
        if plan.verdict.kind == "does not fit" and not self._wanted.insists:
            raise DoesNotFitError(plan.verdict.message, plan.verdict.change)
        self._journal.keep("plan", {"model": self.model.fingerprint, "context": plan.context})
        speeds = [f"{p.what.split()[0]} {p.tok_s:,.0f}" for p in (plan.prefill, plan.decode) if p.tok_s is not None]
        told = f"; {', '.join(speeds)} tok/s" if speeds else ""
        return Done(f"{plan.verdict.kind}: {_gib(plan.bytes_of(MEMORY))}, context {plan.context:,}{told}")

    def _rehearse(self) -> Done:
        assert self.header is not None
        assert self.model is not None
        key = {**asdict(self._task(self.header, is_rehearsal=True)), "path": self.model.fingerprint}
        if self._journal.note_of("rehearse") == key:
            return Done("nothing to be refused later", is_from_before=True)
        try:
            found = self._trials.begin(self._task(self.header, is_rehearsal=True)).wait_for("rehearse")
        except TrialError as error:
            if not self._wanted.insists:
                raise
            return Done(f"failed, but --force goes on: {error}")
        self._journal.keep("rehearse", key)
        return Done(
            f"{found['num_tensors']} tensors and {found['num_kinds']} kinds of matrices are as the engine takes"
        )

    def _task(self, path: Path, *, is_rehearsal: bool = False) -> Task:
        """With the accelerator's options where the command of the plan has them."""
        assert self.plan is not None
        wishes, uses_card = self._wanted.wishes, self.plan.uses_card
        return Task(
            path=str(path.absolute()),
            data_folder=str(self._data_folder),
            context=self.plan.context,
            cache_type=self.plan.cache_type,
            compute=wishes.compute,
            num_threads=wishes.num_threads,
            is_rehearsal=is_rehearsal,
            accelerator="cuda" if uses_card else None,
            accelerator_bytes=wishes.max_gpu_bytes if uses_card else None,
            placement_rules=wishes.placement_rules if uses_card else "[]",
        )

    def _confirm(self) -> Done:
        """Once for a plan: a resumed setup does not ask again, unless the plan became another."""
        assert self.plan is not None
        assert self.model is not None
        note = {"model": self.model.fingerprint, "context": self.plan.context, "quantization": self.plan.quantization}
        if self._journal.note_of("confirm") == note:
            return Done("confirmed before", is_from_before=True)
        missing = self._source.missing_bytes
        fetch = f"fetch {_gib(missing)}, then " if missing else ""
        if not self._wanted.is_confirmed:
            self._watcher.ask(f"{fetch}load {self.plan.model} with {_gib(self.plan.bytes_of(MEMORY))} of memory?")
        self._journal.keep("confirm", note)
        return Done("by --yes" if self._wanted.is_confirmed else "yes")

    def _pull(self) -> Done:
        is_here = not self._source.missing_bytes
        self.path = self._source.fetch(StepReport(self._watcher, "pull"))
        return Done(str(self.path), is_from_before=is_here)

    def _load(self) -> Done:
        """Begins the process that loads, asks and measures. What an earlier run found of the same file stays."""
        assert self.path is not None
        task, status = self._task(self.path), self.path.stat()
        self._key = {**asdict(task), "bytes": status.st_size, "changed": status.st_mtime_ns}
        before = self._journal.note_of("prove")
        if isinstance(before, dict) and before.get("key") == self._key:
            self._tried = before
        else:
            self._trial = self._trials.begin(task)
        return self._done_part("load", lambda facts: f"in {facts['seconds']:.1f} s")

    def _done_part(self, part: Part, told: Callable[[Facts], str]) -> Done:
        """Of the process, or of the earlier run."""
        if self._trial is None:
            return Done(told(self._tried[part]), is_from_before=True)
        unit: Unit = "bytes" if part == "load" else "samples"

        def advance(facts: Facts) -> None:
            note = str(facts.get("note", ""))
            self._watcher.advance(part, float(facts["done"]), float(facts["total"]), unit, note)

        self._tried[part] = dict(self._trial.wait_for(part, advance))
        return Done(told(self._tried[part]))

    def _smoke(self) -> Done:
        done = self._done_part("smoke", _answer_text)
        self.answer = str(self._tried["smoke"]["text"])
        return done

    def _prove(self) -> Done:
        """Kept for the next plans, once."""
        done = self._done_part("prove", lambda facts: "")
        if self._trial is not None:
            self._journal.keep("prove", {"key": self._key, **self._tried})
        self.run = run_from_facts(self._tried["prove"])
        runs = load_runs(self._data_folder)
        assert self.model is not None
        assert self.facts is not None
        wishes = self._wanted.wishes
        earlier = tuple(run for run in runs if run != self.run)
        corrections = corrections_for(self.model, earlier, conditions_of(self.facts, wishes, engine_build()))
        if self.run.accelerator:  # nothing was learned of one before
            corrections = NO_CORRECTIONS
        self.compared = tuple(compared(self.run, corrections))
        if self.run not in runs:
            save_run(self.run, self._data_folder)
        self._learn(self.run)
        errors = [f"{line.name} {line.error:+.0%}" for line in self.compared]
        return replace(done, result=f"planned against measured: {', '.join(errors)}")

    def _learn(self, run: MeasuredRun) -> None:
        """Why what was planned before may be another number than at the end, and whether the machine does more."""
        assert self.plan is not None
        assert self.facts is not None
        if run.ceilings is not None and not run.accelerator:
            self.remarks += filter(None, [busy_run_note(run), moment_note(self.plan, self.facts, run)])
            self.remarks += filter(None, [raise_ceilings(self.facts, self._data_folder, *run.ceilings)])

    def _save(self) -> Done:
        assert self.plan is not None
        assert self.run is not None
        name = self._journal.path.name.removesuffix(".journal.json")
        self.kept = self._data_folder / FOLDER / f"{name}.json"
        facts = {
            "model": self._wanted.model,
            "path": str(self.path),
            "command": self.command,
            "plan": asdict(self.plan),
            "run": asdict(self.run),
        }
        _write(self.kept, facts)
        self._journal.remove()
        return Done(str(self.kept))


def _write(path: Path, facts: Mapping[str, Any]) -> None:
    """Whole or not at all."""
    part = path.with_suffix(f".{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part.write_text(json.dumps(facts, indent=2), encoding="utf-8")
        part.replace(path)
    except OSError as error:
        with suppress(OSError):
            part.unlink()
        raise HomeFolderError(f"{path}: the setup cannot be kept: {error.strerror or error}") from None


def _answer_text(facts: Facts) -> str:
    text = str(facts["text"])
    shown = text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}..."
    doubt = "" if facts["is_like_words"] else "; that does not look like words: look at the file and its quantization"
    return f"it answered {shown!r}{doubt}"


def _gib(num_bytes: float) -> str:
    return f"{num_bytes / GIB:.1f} GiB"
