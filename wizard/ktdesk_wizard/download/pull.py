"""Gets one model into the store: what is there is checked, what the user has is linked, the rest is fetched.

    wanted = WantedModel("owner/Big-GGUF:Q4_K_M", "Q4_K_M", "https://huggingface.co", files, "owner/Big-GGUF", commit)
    pulled = pull(Http(), settings.models_folder, wanted, watcher=watcher)
    pulled.path    # what the engine opens

It may be interrupted anywhere and called again. A file has its own name once it is whole and its SHA-256 right. Whether
all of them are a model that can be opened then, the record says: `pulled.record.problem`.
"""

from __future__ import annotations

import datetime
import fcntl
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from ktdesk_wizard.download.adopting import Wanted, adopt, files_by_size
from ktdesk_wizard.download.journal import Identity, read_journal
from ktdesk_wizard.download.origins import Origins, Patience
from ktdesk_wizard.download.part_file import PartFile, PieceLimits
from ktdesk_wizard.download.room import check_room, writing_to
from ktdesk_wizard.download.state import Watcher
from ktdesk_wizard.download.transfer import FileTransfer, Transfer
from ktdesk_wizard.errors import FetchError, StoreError
from ktdesk_wizard.hub.failures import PassingError
from ktdesk_wizard.hub.http import Http
from ktdesk_wizard.hub.location import Location, RemoteFile, locate
from ktdesk_wizard.report import Report, Silence
from ktdesk_wizard.store.checking import is_checked, sha256_of
from ktdesk_wizard.store.models import JOURNAL_SUFFIX, PART_SUFFIX, StoredModel
from ktdesk_wizard.store.opening import problem_of
from ktdesk_wizard.store.record import (
    RECORD_SUFFIX,
    ModelRecord,
    StoredFile,
    lock_path,
    read_record,
    remove_if_empty,
    write_record,
)


@dataclass(frozen=True)
class WantedModel:
    name: str
    """That the store will know it by."""
    quantization: str
    source: str
    files: tuple[RemoteFile, ...]
    """In order, each from the first source. Paths are those below the model's folder."""
    folder: str
    """Below the store: OWNER/REPOSITORY, or HOST/FOLDERS of a URL."""
    repository: str | None = None
    revision: str | None = None
    others: Mapping[str, Sequence[RemoteFile]] = field(default_factory=dict)
    """By path: the same file at other sources."""


@dataclass(frozen=True)
class PullOptions:
    adopt_from: tuple[Path, ...] = ()
    """Folders to look for the files in, before they are fetched."""
    num_connections: int = 8
    ignores_room: bool = False
    updates: bool = False
    """Files that are here and right are replaced where the source has others now."""
    limits: PieceLimits = field(default_factory=PieceLimits)
    patience: Patience = field(default_factory=Patience)


@dataclass(frozen=True)
class PulledModel:
    record: ModelRecord
    path: Path
    """Of its first file."""
    fetched_bytes: int
    is_outdated: bool = False
    """The source has other files now."""


def pull(
    http: Http | None,
    store: Path,
    wanted: WantedModel,
    options: PullOptions | None = None,
    *,
    watcher: Watcher | None = None,
    report: Report | None = None,
) -> PulledModel:
    """http: None where nothing may be fetched. WizardError says what is wrong, and what to do."""
    folder = store / wanted.folder
    watcher, report = watcher or Watcher(), report or Silence()
    with writing_to(folder), _locked(folder, wanted, report):
        pulling = _Pull(http, store, folder, wanted, options or PullOptions(), watcher, report)
        try:
            return pulling.run()
        except BaseException:
            pulling.forget_if_nothing_came()
            raise


@contextmanager
def _locked(folder: Path, wanted: WantedModel, report: Report) -> Iterator[None]:
    """Makes the folder. Who held the lock before may have removed it again: then anew."""
    path = lock_path(folder, wanted.quantization)
    while True:
        folder.mkdir(parents=True, exist_ok=True)
        with path.open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                report.step(f"waiting for another ktdesk that fetches {wanted.name}")
                fcntl.flock(lock, fcntl.LOCK_EX)
            if path.exists() and os.path.samestat(path.stat(), os.fstat(lock.fileno())):
                yield
                return


class _Pull:
    def __init__(
        self,
        http: Http | None,
        store: Path,
        folder: Path,
        wanted: WantedModel,
        options: PullOptions,
        watcher: Watcher,
        report: Report,
    ) -> None:
        self._http, self._store, self._folder, self._wanted = http, store, folder, wanted
        self._options, self._watcher, self._report = options, watcher, report
        self._record_path = folder / f"{wanted.quantization}{RECORD_SUFFIX}"
        self._record_lock = threading.Lock()

    def run(self) -> PulledModel:
        before = self._read_record()
        remotes = [self._known(file) for file in self._wanted.files]
        files = tuple(self._noted(remote, before) for remote in remotes)
        if before is not None and self._is_outdated(before, files):
            return PulledModel(before, self._folder / before.files[0].path, 0, is_outdated=True)
        self._record = ModelRecord(
            self._wanted.name, self._wanted.quantization, self._wanted.source, files,
            self._wanted.repository, self._wanted.revision, None if before is None else before.added,
        )  # fmt: skip
        for file in files:
            (self._folder / file.path).parent.mkdir(parents=True, exist_ok=True)
        missing = [file for file in files if not self._is_here(file)]
        missing = [file for file in missing if not self._adopts(file, missing)]
        fetched_bytes = self._fetch(missing, {remote.path: remote for remote in remotes}) if missing else 0
        added = self._record.added or datetime.datetime.now().astimezone().isoformat(timespec="seconds")
        self._record = replace(self._record, added=added, problem=problem_of(self._folder / files[0].path))
        write_record(self._record_path, self._record)
        return PulledModel(self._record, self._folder / files[0].path, fetched_bytes)

    def forget_if_nothing_came(self) -> None:
        """Where it failed before there was a record, nothing of it stays."""
        if not self._record_path.exists():
            lock_path(self._folder, self._wanted.quantization).unlink(missing_ok=True)
            for folder in {self._folder, *((self._folder / file.path).parent for file in self._wanted.files)}:
                remove_if_empty(folder, self._store)

    def _read_record(self) -> ModelRecord | None:
        try:
            return read_record(self._record_path)
        except (FileNotFoundError, StoreError):
            return None

    def _known(self, file: RemoteFile) -> RemoteFile:
        """With its size, which of a URL only its server knows."""
        if file.num_bytes is not None:
            return file
        location = self._locate(file)
        return replace(file, num_bytes=location.num_bytes, sha256=location.sha256)

    def _locate(self, file: RemoteFile) -> Location:
        if self._http is None:
            raise FetchError(f"{file.path} is not here, and HF_HUB_OFFLINE is set: unset it to fetch it")
        try:
            return locate(self._http, file)
        except PassingError as error:
            raise FetchError(f"{file.path}: {error}; try again later, or another --source") from error

    def _noted(self, remote: RemoteFile, before: ModelRecord | None) -> StoredFile:
        """With what is known of it from before."""
        assert remote.num_bytes is not None
        for file in before.files if before is not None else ():
            if (file.path, file.num_bytes, file.sha256) == (remote.path, remote.num_bytes, remote.sha256):
                return file
        return StoredFile(remote.path, remote.num_bytes, remote.sha256)

    def _is_outdated(self, before: ModelRecord, files: Sequence[StoredFile]) -> bool:
        """All of the old ones are here, and they are others."""
        old = StoredModel(before, self._folder, self._record_path)
        hashes = [(file.path, file.sha256) for file in before.files]
        is_other = hashes != [(file.path, file.sha256) for file in files]
        return is_other and old.has_all and not self._options.updates

    def _is_here(self, file: StoredFile) -> bool:
        """Whole and right. What is not right goes: it is fetched again."""
        path = self._folder / file.path
        if not path.exists():
            path.unlink(missing_ok=True)  # a link that leads nowhere any more
            return False
        if is_checked(StoredModel(self._record, self._folder, None), file):
            return True
        if path.stat().st_size == file.num_bytes:
            self._report.step(f"checking {path.name}")
            if file.sha256 in (None, self._hash(path, file.num_bytes)):
                self._note_checked(file)
                return True
        self._watcher.note(f"{path.name} is not what its hash says: it is fetched again")
        path.unlink()
        return False

    def _hash(self, path: Path, num_bytes: int) -> str:
        done_bytes = 0

        def advance(read_bytes: int) -> None:
            nonlocal done_bytes
            done_bytes += read_bytes
            self._report.advance(done_bytes, num_bytes)

        return sha256_of(path, advance)

    def _note_checked(self, file: StoredFile) -> None:
        changed_ns = (self._folder / file.path).stat().st_mtime_ns
        with self._record_lock:
            self._record = self._record.with_file(replace(file, checked_ns=changed_ns))
            write_record(self._record_path, self._record)

    def _adopts(self, file: StoredFile, missing: Sequence[StoredFile]) -> bool:
        """Links what the user has of it."""
        if file.sha256 is None or not self._options.adopt_from:
            return False
        if not hasattr(self, "_candidates"):
            self._candidates = files_by_size(
                self._options.adopt_from, [each.num_bytes for each in missing], self._store
            )
        candidates = self._candidates.get(file.num_bytes, [])
        if not candidates:
            return False
        target = self._folder / file.path
        self._report.step(f"checking what is here of {target.name}")
        adopted = adopt(Wanted(file.num_bytes, file.sha256), candidates, target)
        if adopted is None:
            return False
        for suffix in (PART_SUFFIX, JOURNAL_SUFFIX):
            Path(f"{target}{suffix}").unlink(missing_ok=True)
        self._watcher.note(f"{target.name}: {adopted.how} to {adopted.original}, nothing is fetched or copied")
        self._note_checked(replace(file, origin=adopted.how, original=str(adopted.original)))
        return True

    def _fetch(self, missing: Sequence[StoredFile], remotes: Mapping[str, RemoteFile]) -> int:
        """Bytes that came over the network."""
        if not self._options.ignores_room:
            check_room(self._folder, sum(file.num_bytes - self._kept_bytes(file) for file in missing))
        first = self._locate(remotes[missing[0].path])  # refused? then before anything is written
        write_record(self._record_path, self._record)
        assert self._http is not None
        files = [self._file_transfer(file, remotes[file.path], first) for file in missing]
        present = self._record.num_bytes - sum(file.num_bytes for file in missing)
        notes = dict(zip(files, missing, strict=True))
        transfer = Transfer(
            self._http,
            files,
            lambda done: self._note_checked(replace(notes[done], origin="fetched", original=None)),
            num_connections=self._options.num_connections,
            patience=self._options.patience,
            watcher=self._watcher,
            commit_seconds=self._options.limits.commit_seconds,
            done_bytes=present,
        )
        transfer.run()
        return transfer.state().fetched_bytes

    def _kept_bytes(self, file: StoredFile) -> int:
        """Of an earlier, interrupted run."""
        target = self._folder / file.path
        identity, stretches = read_journal(Path(f"{target}{JOURNAL_SUFFIX}"))
        is_same = identity is not None and (identity.num_bytes, identity.sha256) == (file.num_bytes, file.sha256)
        part = Path(f"{target}{PART_SUFFIX}")
        if not is_same or not part.exists():
            return 0
        return min(sum(stretch.end - stretch.start for stretch in stretches), part.stat().st_blocks * 512)

    def _file_transfer(self, file: StoredFile, remote: RemoteFile, first: Location) -> FileTransfer:
        assert self._http is not None
        etag = None
        if file.sha256 is None:  # without a hash, an ETag says whether it is still the same file
            etag = first.etag if len(self._wanted.files) == 1 else self._locate(remote).etag
        identity = Identity(remote.url, file.num_bytes, file.sha256, etag)
        sources = [remote, *self._wanted.others.get(remote.path, ())]
        part = PartFile(self._folder / file.path, identity, self._options.limits)
        return FileTransfer(part, Origins(self._http, sources, self._options.patience))
