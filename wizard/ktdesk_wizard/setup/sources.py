"""Where the model of a setup is from: a file, the demo, or whatever else can be fetched."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from ktdesk_profiles.demo import DemoProfile
from ktdesk_wizard.demo_model import demo_model, is_made
from ktdesk_wizard.report import Report


class ModelSource(Protocol):
    """What a setup asks of one. A report may raise, to cancel."""

    def header(self, report: Report) -> Path:
        """A file to plan with and to rehearse: the model itself, or one with its headers and holes for weights."""
        ...

    @property
    def missing_bytes(self) -> int:
        """That still have to be fetched or made. Asked after `header`."""
        ...

    def fetch(self, report: Report) -> Path:
        """The file to load."""
        ...

    def command_name(self, path: Path) -> str:
        """How the command line calls it, once it is there."""
        ...


@dataclass(frozen=True)
class FileSource:
    """A model that is here."""

    path: Path

    def header(self, report: Report) -> Path:
        return self.path

    @property
    def missing_bytes(self) -> int:
        return 0

    def fetch(self, report: Report) -> Path:
        return self.path

    def command_name(self, path: Path) -> str:
        return str(path)


@dataclass(frozen=True)
class DemoSource:
    """Small enough to be made before it is planned."""

    profile: DemoProfile
    folder: Path

    def header(self, report: Report) -> Path:
        return demo_model(self.profile, self.folder, report=report)

    @property
    def missing_bytes(self) -> int:
        made = is_made(self.profile, self.folder / f"{self.profile.name}.gguf")
        return 0 if made else self.profile.made_bytes

    def fetch(self, report: Report) -> Path:
        return demo_model(self.profile, self.folder, report=report)

    def command_name(self, path: Path) -> str:
        return "demo"
