"""A model on a hub as the source of a setup: its headers first, all of it later."""

from __future__ import annotations

import tempfile
from pathlib import Path

from ktdesk.hub_planning import offered_sets
from ktdesk.pulling import PullWish, adopted_folders, checked, rate_text, wanted_model
from ktdesk.settings import Settings
from ktdesk_wizard.download.pull import PullOptions, WantedModel, pull
from ktdesk_wizard.download.state import TransferState, Watcher
from ktdesk_wizard.errors import FetchError
from ktdesk_wizard.hub.headers import fetch_headers
from ktdesk_wizard.hub.http import Http, is_offline
from ktdesk_wizard.hub.names import RepositoryName
from ktdesk_wizard.plan.model import model_of_file
from ktdesk_wizard.plan.offers import Offered
from ktdesk_wizard.setup.sources import SourceReport, check_runs
from ktdesk_wizard.setup.step import FileAdvance
from ktdesk_wizard.store.models import StoredModel, stored_models


class HubSource:
    def __init__(self, wish: PullWish, settings: Settings) -> None:
        self._wish, self._settings = wish, settings
        self._http = None if is_offline() else Http()
        self._wanted: WantedModel | None = None
        self._headers: tempfile.TemporaryDirectory[str] | None = None
        """Until `close`: the rehearsal reads it too."""
        self._header: Path | None = None

    @property
    def name(self) -> str:
        return self._resolved.name

    @property
    def _resolved(self) -> WantedModel:
        if self._wanted is None:
            self._wanted = wanted_model(self._wish, self._settings, self._http)
        return self._wanted

    def find(self, report: SourceReport) -> str:
        """With its quantization, which the machine's memory decides, not its speed. Its headers are read now: what is
        gated or damaged is known before anybody waits."""
        report.step("asking the hub")
        if self._http is not None:
            model = model_of_file(self.header(report))
            if not self._wish.force:
                check_runs(model, self.name)
        num_files = len(self._resolved.files)
        return f"{self.name}, {num_files} {'file' if num_files == 1 else 'files'}"

    def header(self, report: SourceReport) -> Path:
        """Of what is here whole, the model itself."""
        report.step("asking the hub")
        stored = self._stored()
        if stored is not None and stored.state == "whole":
            return stored.path
        if self._http is None:  # whatever is missing, `pull` says what to do
            return self.fetch(report)
        if self._header is None:
            self._headers = tempfile.TemporaryDirectory(prefix="ktdesk-headers-")
            folder = Path(self._headers.name)
            self._header = fetch_headers(self._http, self._resolved.files, folder, report).path
        return self._header

    @property
    def missing_bytes(self) -> int:
        stored = self._stored()
        total = sum(file.num_bytes or 0 for file in self._resolved.files)
        return total if stored is None else stored.num_bytes - _present_bytes(stored)

    def fetch(self, report: SourceReport) -> Path:
        options = PullOptions(adopt_from=adopted_folders(self._wish), ignores_room=self._wish.force)
        watcher = _Watching(report)
        store = self._settings.models_folder
        pulled = pull(self._http, store, self._resolved, options, watcher=watcher, report=report)
        return checked(pulled, self._wish).path

    @property
    def quantization(self) -> str:
        """As the repository calls it."""
        return self._resolved.quantization

    def offered(self) -> tuple[Offered, ...]:
        """All that its repository has, the largest first. Of a URL, and where nobody answers, nothing."""
        repository = self._resolved.repository
        if self._http is None or repository is None:
            return ()
        name = RepositoryName(repository, None, self._wish.revision)
        try:
            sets, _ = offered_sets(self._http, name, self._settings, None, self._wish.sources)
        except FetchError:
            return ()
        return tuple(Offered(each.quantization, each.num_bytes, len(each.files)) for each in sets)

    def close(self) -> None:
        if self._headers is not None:
            self._headers.cleanup()
            self._headers = self._header = None

    def _stored(self) -> StoredModel | None:
        models = stored_models(self._settings.models_folder)
        return next((model for model in models if model.name == self._resolved.name), None)


class _Watching(Watcher):
    def __init__(self, report: SourceReport) -> None:
        self._report = report

    def saw(self, state: TransferState) -> None:
        self._report.note(rate_text(state))
        self._report.files(tuple(FileAdvance(file.name, file.done_bytes, file.total_bytes) for file in state.files))
        self._report.advance(state.done_bytes, state.total_bytes)

    def note(self, text: str) -> None:
        self._report.note(text)


def _present_bytes(model: StoredModel) -> int:
    paths = [(model.path_of(file), file.num_bytes) for file in model.record.files]
    return sum(num_bytes for path, num_bytes in paths if path.exists())
