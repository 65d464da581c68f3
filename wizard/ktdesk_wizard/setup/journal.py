"""What a setup has done, on disk, so that the next run of it goes on from there.

One file for each model, wishes and engine build, written in one step after each step that is worth keeping. A step's
note is whatever makes its result known again without doing it again.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ktdesk_wizard.errors import HomeFolderError, WishError
from ktdesk_wizard.plan.wishes import Wishes
from ktdesk_wizard.setup.step import StepName
from ktdesk_wizard.setup.wanted import Wanted

FOLDER = "setups"
VERSION = 1


class Journal:
    def __init__(self, data_folder: Path, wanted: Wanted, build: str) -> None:
        self._key = {"version": VERSION, "model": wanted.model, "wishes": asdict(wanted.wishes), "build": build}
        self.path = data_folder / FOLDER / f"{_file_name(wanted.model)}-{_digest(self._key)}.journal.json"
        self._notes: dict[str, Any] = {} if wanted.starts_over else self._read()

    def note_of(self, step: StepName) -> Any:
        """What an earlier run noted of the step; None: nothing."""
        return self._notes.get(step)

    def keep(self, step: StepName, note: Any) -> None:
        """On disk before it returns."""
        self._notes[step] = note
        part = self.path.with_suffix(f".{os.getpid()}")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with part.open("w", encoding="utf-8") as file:
                json.dump({**self._key, "steps": self._notes}, file, indent=2)
                file.flush()
                os.fsync(file.fileno())
            part.replace(self.path)
        except OSError as error:
            with suppress(OSError):
                part.unlink()
            raise HomeFolderError(f"{self.path}: the setup cannot be noted: {error.strerror or error}") from None

    def remove(self) -> None:
        """It came to its end."""
        self.path.unlink(missing_ok=True)

    def _read(self) -> dict[str, Any]:
        """Nothing where there is none, or what makes no sense: then it is only done again."""
        try:
            found = json.loads(self.path.read_text(encoding="utf-8"))
            notes = found.pop("steps")
        except (OSError, ValueError, KeyError, AttributeError, TypeError):
            return {}
        return notes if found == json.loads(json.dumps(self._key)) and isinstance(notes, dict) else {}


def unfinished(data_folder: Path, build: str) -> list[Wanted]:
    """Setups that somebody said yes to and that did not come to their end, the latest first."""
    found = []
    for path in (data_folder / FOLDER).glob("*.journal.json"):
        with suppress(OSError, ValueError, KeyError, TypeError, WishError):
            facts = json.loads(path.read_text(encoding="utf-8"))
            wanted = Wanted(facts["model"], Wishes(**facts["wishes"]))
            if "confirm" in facts["steps"] and Journal(data_folder, wanted, build).path == path:
                found.append((path.stat().st_mtime, wanted))
    return [wanted for _, wanted in sorted(found, key=lambda each: each[0], reverse=True)]


def _file_name(model: str) -> str:
    return re.sub(r"[^\w.-]+", "_", Path(model).name)[:80] or "model"


def _digest(key: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:12]
