"""The measured runs of a machine, a file each, in the folder `runs` of the user's data."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ktdesk_wizard.errors import HomeFolderError
from ktdesk_wizard.prove.run import PHASES, MeasuredRun, MemorySample, SpeedSample

FOLDER = "runs"
MAX_KEPT = 200
"""The oldest are removed beyond that."""


def save_run(run: MeasuredRun, data_folder: Path) -> Path:
    """Whole or not at all."""
    folder = data_folder / FOLDER
    name = f"{run.date.replace(':', '-').replace(' ', 'T')}-{run.model[:12]}"
    part = folder / f".{name}.{os.getpid()}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        part.write_text(json.dumps(asdict(run), indent=2), encoding="utf-8")
        path = _free_name(folder, name)
        part.replace(path)
        _forget_oldest(folder)
    except OSError as error:
        with suppress(OSError):
            part.unlink()
        raise HomeFolderError(f"{folder}: the measured run cannot be kept: {error.strerror or error}") from None
    return path


def _free_name(folder: Path, name: str) -> Path:
    path, number = folder / f"{name}.json", 2
    while path.exists():
        path, number = folder / f"{name}-{number}.json", number + 1
    return path


def _forget_oldest(folder: Path) -> None:
    for path in sorted(folder.glob("*.json"))[:-MAX_KEPT]:
        path.unlink(missing_ok=True)


def load_runs(data_folder: Path) -> tuple[MeasuredRun, ...]:
    """The oldest first. What cannot be read or makes no sense is left out: it is only measured again."""
    runs = (_read(path) for path in sorted((data_folder / FOLDER).glob("*.json")))
    return tuple(run for run in runs if run is not None)


def run_from_facts(facts: Mapping[str, Any]) -> MeasuredRun:
    """What `asdict` made of one. ValueError, TypeError or KeyError where it makes no sense."""
    values = dict(facts)
    speeds = tuple(_speed(speed) for speed in values.pop("speeds"))
    memory = values.pop("memory")
    return MeasuredRun(**values, speeds=speeds, memory=None if memory is None else _memory(memory))


def _read(path: Path) -> MeasuredRun | None:
    try:
        run = run_from_facts(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None
    return run if all(isinstance(text, str) for text in (run.date, run.machine, run.build, run.model)) else None


def _speed(values: dict[str, Any]) -> SpeedSample:
    speed = SpeedSample(**values)
    tiles = () if speed.tile_ops_s is None else (speed.tile_ops_s,)
    numbers = (speed.tok_s, speed.read_bytes_s, speed.peak_ops_s, *tiles)
    counts = (speed.num_tokens, speed.depth)
    if speed.phase not in PHASES or not all(isinstance(number, float) and number > 0 for number in numbers):
        raise ValueError(values)
    if not all(isinstance(count, int) and count >= 0 for count in counts):
        raise ValueError(values)
    if speed.planned_tok_s is not None and not speed.planned_tok_s > 0:
        raise ValueError(values)
    return speed


def _memory(values: dict[str, Any]) -> MemorySample:
    memory = MemorySample(**values)
    if not isinstance(memory.peak_bytes, int) or not isinstance(memory.planned_bytes, int):
        raise ValueError(values)
    return memory
