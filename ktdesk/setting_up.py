"""`ktdesk setup` on the command line: shows the steps of a `Setup` as they go, and what came of it."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from textwrap import wrap

from ktdesk.amounts import bytes_text
from ktdesk.commands.setup import SetupOptions
from ktdesk.errors import UsageError
from ktdesk.exit_codes import ExitCode
from ktdesk.json_output import json_text
from ktdesk.model_paths import DEMO, check_named, check_quantization, model_path
from ktdesk.planned_text import compared_facts, planned_lines
from ktdesk.planning import is_whole
from ktdesk.settings import DEMO_VARIABLE, Settings
from ktdesk.terminal import Progress, on_one_line, tell
from ktdesk_wizard.plan.wishes import Wishes
from ktdesk_wizard.setup.flow import Setup
from ktdesk_wizard.setup.outcome import Outcome
from ktdesk_wizard.setup.sources import DemoSource, FileSource, ModelSource
from ktdesk_wizard.setup.step import Advance, Step, StepName
from ktdesk_wizard.setup.wanted import Wanted

TITLE_WIDTH = 30
WIDTH = 80
KEPT: dict[StepName, str] = {
    "measure": "what was measured of the machine",
    "confirm": "that it was confirmed",
    "pull": "the model",
    "prove": "what was measured of it",
}
COME = "what has come of the model"
NOBODY_TO_ASK = (
    "standard input is no terminal, so nobody can be asked whether to go on: add --yes, or see first with `ktdesk plan`"
)


def set_up(model: str, wishes: Wishes, settings: Settings, options: SetupOptions) -> int:
    check_named(model)
    check_quantization(model, options.quant)
    named = model if options.quant is None else f"{model}:{options.quant}"
    wanted = Wanted(
        model=named,
        wishes=wishes,
        measures_again=options.measure,
        insists=options.force,
        is_confirmed=options.yes,
        starts_over=options.start_over,
    )
    watcher = Watcher()
    setup = Setup(wanted, source_of(model, wishes, settings, options), settings.data_folder, watcher)
    watcher.setup = setup
    if setup.will_ask and not sys.stdin.isatty():
        raise UsageError(NOBODY_TO_ASK)
    try:
        outcome = setup.run()
    except (KeyboardInterrupt, SystemExit):
        watcher.tell_kept()
        raise
    finally:
        watcher.finish()
    print(json_text(outcome_facts(outcome)) if options.as_json else "\n".join(outcome_lines(outcome)))
    return ExitCode.OK


def source_of(model: str, wishes: Wishes, settings: Settings, options: SetupOptions) -> ModelSource:
    """UsageError or ModelFileError where nothing is called so. What is here is taken from here."""
    is_file = model.endswith(".gguf") and "://" not in model
    is_here = model == DEMO or is_file or is_whole(model, settings)
    if is_here and options.quant is not None:
        raise UsageError("--quant is for names of the catalogue or of a hub: a file has the one that it has")
    if model == DEMO and DEMO_VARIABLE not in os.environ:
        from ktdesk_profiles.demo import load_demo_profile

        return DemoSource(load_demo_profile(), settings.models_folder / "demo")
    if is_here:
        return FileSource(model_path(model, settings), insists=options.force)
    from ktdesk.hub_source import HubSource
    from ktdesk.pulling import PullWish

    wish = PullWish(model, options.quant, sources=tuple(options.source or ()), force=options.force, wishes=wishes)
    return HubSource(wish, settings)


class Watcher:
    """A line a step on standard error, rewritten while it goes on where that is a terminal."""

    def __init__(self) -> None:
        self.setup: Setup | None = None
        self._progress = Progress()

    def __call__(self, step: Step) -> None:
        if step.state == "running":
            self._running(step)
        elif step.state == "asking":
            self._ask(step)
        elif step.state == "done":
            self._line(step.title, step.result + (" (before)" if step.is_from_before else ""))
        elif step.state == "cancelled":
            self._line(step.title, "stopped")
        elif step.state == "failed":
            assert step.failure is not None
            self._line(step.title, "failed")
            tell(f"{'':<{TITLE_WIDTH}}{on_one_line(step.failure.advice)}")

    def finish(self) -> None:
        self._progress.erase()

    def tell_kept(self) -> None:
        """To whom it was stopped for."""
        assert self.setup is not None
        tell(f"{'':<{TITLE_WIDTH}}{kept_text(self.setup.steps)}")

    def _running(self, step: Step) -> None:
        if not self._progress.rewrites:
            return
        if step.advance is None:
            self._progress.step(f"{step.title:<{TITLE_WIDTH}}")
        else:
            self._progress.tell(_advance_text(step.advance))

    def _line(self, title: str, text: str) -> None:
        self._progress.erase()
        tell(f"{title:<{TITLE_WIDTH}}{on_one_line(text)}")

    def _ask(self, step: Step) -> None:
        assert self.setup is not None
        if not sys.stdin.isatty():
            raise UsageError(NOBODY_TO_ASK)
        self._progress.erase()
        tell(f"{on_one_line(step.result)} [y/N] ", end="")
        self.setup.answer(sys.stdin.readline().strip().lower() in ("y", "yes"))


def kept_text(steps: Sequence[Step]) -> str:
    """What this run leaves for the next one, and how to go on."""
    done = {step.name for step in steps if step.state == "done" and not step.is_from_before}
    kept = [text for name, text in KEPT.items() if name in done]
    kept += [COME for step in steps if step.name == "pull" and step.state == "cancelled"]
    if not kept:
        goes_on = any(step.is_from_before for step in steps)
        return f"nothing is lost: the same command {'goes on from there' if goes_on else 'begins again'}"
    return f"kept: {', '.join(kept)}; the same command goes on from there"


def _advance_text(advance: Advance) -> str:
    note = f"  {on_one_line(advance.note)}" if advance.note else ""
    if not advance.total:
        return note.strip()
    if advance.unit == "samples":
        return f"{advance.done:.0f} of {advance.total:.0f}{note}"
    return f"{advance.share:4.0%} of {bytes_text(advance.total)}{note}"


def outcome_facts(outcome: Outcome) -> dict[str, object]:
    return {
        "path": str(outcome.path),
        "plan": asdict(outcome.plan),
        "run": asdict(outcome.run),
        "planned": compared_facts(outcome.compared),
        "answer": outcome.answer,
        "command": list(outcome.command),
        "kept": str(outcome.kept),
        "remarks": list(outcome.remarks),
    }


def outcome_lines(outcome: Outcome) -> Iterator[str]:
    yield from planned_lines(outcome.compared)
    for remark in outcome.remarks:
        yield from wrap(on_one_line(f"Note: {remark}."), WIDTH, subsequent_indent="  ", break_on_hyphens=False)
    yield ""
    yield f"Chat with it: {shlex.join(outcome.command)}"
