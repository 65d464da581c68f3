"""Where the model of a setup is from: a file, the demo, or whatever else can be fetched."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from ktdesk_engine.models.registry import families
from ktdesk_profiles.demo import DemoProfile
from ktdesk_wizard.demo_model import demo_model, is_made
from ktdesk_wizard.plan.model import PlannedModel, model_of_file, unknown_architecture
from ktdesk_wizard.report import Report
from ktdesk_wizard.setup.step import FileAdvance


class SourceReport(Report, Protocol):
    """It may raise, to cancel."""

    def note(self, text: str) -> None:
        """Beside how far it is: how fast, or what is in the way."""

    def files(self, files: tuple[FileAdvance, ...]) -> None:
        """How far each file is, before the next `advance`."""


class ModelSource(Protocol):
    """What a setup asks of one."""

    @property
    def name(self) -> str:
        """By which the command line knows it, once it is there. Asked after `header`."""
        ...

    def find(self, report: SourceReport) -> str:
        """What is meant, in a line, before anything that takes long. An error where there is no such model."""
        ...

    def header(self, report: SourceReport) -> Path:
        """A file to plan with and to rehearse: the model itself, or one with its headers and holes for weights."""
        ...

    @property
    def missing_bytes(self) -> int:
        """That still have to be fetched or made. Asked after `header`."""
        ...

    def fetch(self, report: SourceReport) -> Path:
        """The file to load."""
        ...

    def close(self) -> None:
        """What `header` made for a while goes."""
        ...


def check_runs(model: PlannedModel, path: Path | str) -> None:
    """UnsupportedError where this build would refuse it, before anybody waits for a measurement."""
    if model.architecture not in families():
        raise unknown_architecture(model.architecture, path)


@dataclass(frozen=True)
class FileSource:
    """A model that is here."""

    path: Path
    insists: bool = False
    """Whether or not this build runs it."""

    @property
    def name(self) -> str:
        return str(self.path)

    def find(self, report: SourceReport) -> str:
        model = model_of_file(self.path)
        if not self.insists:
            check_runs(model, self.path)
        return f"{model.name}, {self.path}"

    def header(self, report: SourceReport) -> Path:
        return self.path

    @property
    def missing_bytes(self) -> int:
        return 0

    def fetch(self, report: SourceReport) -> Path:
        return self.path

    def close(self) -> None: ...


@dataclass(frozen=True)
class DemoSource:
    """Small enough to be made before it is planned."""

    profile: DemoProfile
    folder: Path

    @property
    def name(self) -> str:
        return "demo"

    def find(self, report: SourceReport) -> str:
        return f"{self.profile.title}, which ktdesk makes"

    def header(self, report: SourceReport) -> Path:
        return demo_model(self.profile, self.folder, report=report)

    @property
    def missing_bytes(self) -> int:
        made = is_made(self.profile, self.folder / f"{self.profile.name}.gguf")
        return 0 if made else self.profile.made_bytes

    def fetch(self, report: SourceReport) -> Path:
        return demo_model(self.profile, self.folder, report=report)

    def close(self) -> None: ...
