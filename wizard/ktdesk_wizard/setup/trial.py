"""The process that tries a model: `python -m ktdesk_wizard.setup.trial TASK`.

A process of its own, so that its peak of memory is that of the model alone, and so that a model which brings the
engine down does not bring the setup down. It ends when the setup does.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ktdesk_engine.benchmark.model import ModelPlan
from ktdesk_engine.engine import Engine
from ktdesk_engine.load_progress import LoadProgress
from ktdesk_wizard.probe.measurement import with_measurement
from ktdesk_wizard.probe.probe import probe
from ktdesk_wizard.prove.measuring import measure_engine
from ktdesk_wizard.setup import smoke
from ktdesk_wizard.setup.messages import Message, Part, Task
from ktdesk_wizard.setup.rehearsal import rehearse

PR_SET_PDEATHSIG = 1
SECONDS_BETWEEN_ADVANCES = 0.1
NUM_PROMPT_TOKENS, NUM_ANSWER_TOKENS = 512, 24
NUM_SAMPLES, MAX_SECONDS = 9, 15.0
"""Of prefill and of decode: as many as go into the time, for single ones differ by a tenth and more."""


class Teller:
    """Writes messages, of advances not too many."""

    def __init__(self) -> None:
        self._next = 0.0
        self.part: Part = "load"

    def advance(self, facts: Mapping[str, Any]) -> None:
        now = time.monotonic()
        if now >= self._next:
            self._next = now + SECONDS_BETWEEN_ADVANCES
            self._tell("advance", facts)

    def done(self, facts: Mapping[str, Any]) -> None:
        self._tell("done", facts)
        self._next = 0.0

    def failed(self, error: BaseException) -> None:
        is_memory = isinstance(error, MemoryError) or type(error).__name__ == "ResourceError"
        text = "out of memory" if isinstance(error, MemoryError) else " ".join(str(error).split())
        self._tell("failed", {"error": text or type(error).__name__, "is_memory": is_memory})

    def _tell(self, kind: Any, facts: Mapping[str, Any]) -> None:
        print(Message(self.part, kind, facts).as_line(), flush=True)


def main(argument: str) -> int:
    _end_with(os.getppid())
    return run(Task.from_argument(argument))


def run(task: Task) -> int:
    """The exit code."""
    teller = Teller()
    try:
        if task.is_rehearsal:
            teller.part = "rehearse"
            teller.done(asdict(rehearse(task)))
        else:
            _try(task, teller)
    except (Exception, KeyboardInterrupt) as error:
        teller.failed(error)
        return 1
    return 0


def _try(task: Task, teller: Teller) -> None:
    def show(state: LoadProgress) -> None:
        teller.advance({"done": state.done_bytes, "total": state.total_bytes, "note": state.stage})

    started = time.monotonic()
    with Engine.load(task.path, task.config, show) as engine:
        teller.done({"seconds": time.monotonic() - started})
        teller.part = "smoke"
        teller.done(asdict(smoke.ask(engine)))
        teller.part = "prove"
        folder = Path(task.data_folder)
        facts = with_measurement(probe(folder / "models"), folder)
        room = task.context - NUM_ANSWER_TOKENS - 1
        prompts = (max(1, min(NUM_PROMPT_TOKENS, room)),)
        plan = ModelPlan(prompts, answer=NUM_ANSWER_TOKENS, repeat=NUM_SAMPLES, max_seconds=MAX_SECONDS)
        run = measure_engine(
            engine, facts, plan, lambda name, done, total: teller.advance({"done": done, "total": total, "note": name})
        )
        teller.done(asdict(run))


def _end_with(parent: int) -> None:
    """Linux: when the setup dies, even by SIGKILL, so does this."""
    libc = ctypes.CDLL(None, use_errno=True)
    if hasattr(libc, "prctl"):
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it died before
        sys.exit(1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
