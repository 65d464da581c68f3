"""What `ktdesk pull` does: finds out what is meant and which quantization, then gets it, with progress."""

from __future__ import annotations

import contextlib
import time
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from ktdesk.amounts import bytes_text
from ktdesk.errors import UsageError
from ktdesk.hub_planning import planned_from_hub
from ktdesk.looking_first import refuse_what_does_not_run
from ktdesk.model_paths import DEMO, check_named, check_quantization
from ktdesk.planning import Question, catalogue, machine_facts
from ktdesk.settings import Settings
from ktdesk.terminal import Progress, note, on_one_line, tell
from ktdesk_engine.errors import ModelFileError
from ktdesk_profiles.models import nearest
from ktdesk_wizard.download.adopting import hub_cache, usual_folders
from ktdesk_wizard.download.pull import PulledModel, PullOptions, WantedModel, pull
from ktdesk_wizard.download.state import TransferState, Watcher
from ktdesk_wizard.errors import DoesNotFitError, FetchError, SourceError
from ktdesk_wizard.hub.cached import cached_repository
from ktdesk_wizard.hub.http import Http, is_offline
from ktdesk_wizard.hub.names import HubName, RepositoryName, UrlName, parse_name
from ktdesk_wizard.hub.repository import Repository
from ktdesk_wizard.hub.sets import GgufSet, named_set, repository_sets, set_with, url_set
from ktdesk_wizard.hub.sources import find_repository, same_files, sources
from ktdesk_wizard.plan.wishes import Wishes, engine_abilities
from ktdesk_wizard.store.models import stored_models
from ktdesk_wizard.store.names import find_models

QUIET_SECONDS = 5.0
"""Without a byte, then it is said to stall."""
SHARE_OF_A_LINE = 0.1
"""Without a terminal, a line is written each time so much more is there."""


@dataclass(frozen=True)
class PullWish:
    model: str
    quantization: str | None = None
    revision: str | None = None
    sources: tuple[str, ...] = ()
    adopt_from: tuple[str, ...] = ()
    adopts_usual: bool = True
    updates: bool = False
    num_connections: int = 8
    force: bool = False
    wishes: Wishes = field(default_factory=Wishes)
    """For the choice of a quantization."""


@dataclass(frozen=True)
class Pulled:
    model: PulledModel
    seconds: float


def pull_model(wish: PullWish, settings: Settings) -> Pulled:
    check_named(wish.model)
    check_quantization(wish.model, wish.quantization)
    started = time.monotonic()
    progress = PullProgress()
    http = None if is_offline() else Http()
    try:
        stored = _stored(wish, settings, with_source=http is None)
        pulled = checked(stored or _pull(wish, settings, http, progress), wish)
    except (KeyboardInterrupt, SystemExit):
        progress.finish()
        tell("stopped: what has come is kept, and the same command goes on from there")
        raise
    finally:
        progress.finish()
    _tell_end(pulled, time.monotonic() - started)
    return Pulled(pulled, time.monotonic() - started)


def _pull(wish: PullWish, settings: Settings, http: Http | None, progress: PullProgress) -> PulledModel:
    wanted = wanted_model(wish, settings, http)
    progress.begin(wanted.name)
    is_begun = any(model.name == wanted.name for model in stored_models(settings.models_folder))
    if http is not None and not wish.force and not is_begun:
        refuse_what_does_not_run(http, wanted.name, wanted.files, progress.report)
    options = PullOptions(
        adopt_from=adopted_folders(wish),
        num_connections=wish.num_connections,
        ignores_room=wish.force,
        updates=wish.updates,
    )
    return pull(http, settings.models_folder, wanted, options, watcher=progress, report=progress.report)


def checked(pulled: PulledModel, wish: PullWish) -> PulledModel:
    """ModelFileError for what came as its source has it, and is no model. It stays, and is listed as that."""
    problem = pulled.record.problem
    if problem is not None and not wish.force:
        name = on_one_line(pulled.record.name)
        again = f"`ktdesk pull {name} --update` fetches what its source has now" if pulled.is_outdated else ""
        raise ModelFileError(
            pulled.path,
            f"it is as its source has it, but no model that can be opened: {problem}. It stays here; "
            f"{again or f'`ktdesk models rm {name}` deletes it'}",
        )
    return pulled


def adopted_folders(wish: PullWish) -> tuple[Path, ...]:
    given = tuple(Path(folder).expanduser() for folder in wish.adopt_from)
    for folder in given:
        if not folder.is_dir():
            raise UsageError(f"--adopt {folder}: no such folder")
    return (*given, *usual_folders()) if wish.adopts_usual else given


def _stored(wish: PullWish, settings: Settings, *, with_source: bool) -> PulledModel | None:
    """What is here whole, and has no source to ask: plain files, and offline the others too."""
    name = wish.model if wish.quantization is None else f"{wish.model}:{wish.quantization}"
    found = find_models(name, stored_models(settings.models_folder))
    may_be_on_hub = parse_name(name) is not None
    if not with_source:
        found = [m for m in found if m.record_path is None and (m.name == name or not may_be_on_hub)]
    whole = [m for m in found if m.has_all]
    return PulledModel(whole[0].record, whole[0].path, 0) if len(whole) == 1 else None


def wanted_model(wish: PullWish, settings: Settings, http: Http | None) -> WantedModel:
    """SourceError or FetchError where there is none. Without a quantization, the most exact that fits."""
    return _first_wanted(_names(wish, settings), wish, settings, http)


def _first_wanted(names: list[HubName], wish: PullWish, settings: Settings, http: Http | None) -> WantedModel:
    """Where none is to be had, why the first is not."""
    try:
        return _wanted_of(names[0], wish, settings, http)
    except FetchError:
        if len(names) > 1:
            with contextlib.suppress(FetchError):
                return _first_wanted(names[1:], wish, settings, http)
        raise


def _names(wish: PullWish, settings: Settings) -> list[HubName]:
    """Of a model of the catalogue, each of its repositories, those first that were seen."""
    name = parse_name(wish.model)
    if isinstance(name, RepositoryName):
        return [replace(name, revision=wish.revision or name.revision)]
    if name is not None:
        return [name]
    bare, _, quantization = wish.model.partition(":")
    if not bare.strip():
        raise SourceError(
            f"{wish.model!r:.200} names no model: give OWNER/REPOSITORY, a URL or a name of the catalogue"
        )
    profile = catalogue(settings).get(bare.lower())
    if profile is None and (sources_here := _sources_here(wish, settings)):
        return sources_here
    if profile is None:
        if wish.model == DEMO:
            raise SourceError("the demo model is made, not pulled: `ktdesk demo --fetch-only` makes it")
        if Path(wish.model).is_file():
            raise SourceError(f"{wish.model!r:.200} is a file that is here: nothing has to be fetched")
        close = nearest(bare, catalogue(settings))
        advice = f"did you mean {' or '.join(close)}?" if close else "`ktdesk plan --list` shows the catalogue"
        raise SourceError(f"{wish.model!r:.200} is no OWNER/REPOSITORY, URL or name of the catalogue: {advice}")
    repositories = sorted(profile.repositories, key=lambda each: not each.seen)
    return [RepositoryName(each.id, quantization or None, wish.revision) for each in repositories]


def _sources_here(wish: PullWish, settings: Settings) -> list[HubName]:
    """Where a model of the store, by whatever it may be called, was begun to be fetched from."""
    found = [m for m in find_models(wish.model, stored_models(settings.models_folder)) if m.record_path is not None]
    if len(found) > 1:
        names = " or ".join(on_one_line(each.name) for each in found)
        raise UsageError(f"{on_one_line(wish.model)!r} may be {names}: name one of them")
    record = found[0].record if found else None
    if record is None:
        return []
    if record.repository is None:
        return [UrlName(record.source)]
    return [RepositoryName(record.repository, wish.quantization or record.quantization, wish.revision)]


def _wanted_of(name: HubName, wish: PullWish, settings: Settings, http: Http | None) -> WantedModel:
    if not isinstance(name, RepositoryName):
        return _wanted_url(name.url)
    repository = _repository(name, wish, settings, http)
    sets = repository_sets(name.id, repository.files)
    quantization = wish.quantization or name.quantization
    if name.path is not None:
        chosen = set_with(sets, name.path, name.id)
    elif quantization is not None:
        chosen = named_set(sets, quantization, name.id)
    elif len(sets) == 1 or http is None:
        chosen = named_set(sets, sets[0].quantization, name.id)
    else:
        chosen = _planned_set(name, sets, wish, settings)
    others = {}
    if http is not None and len(sources(wish.sources)) > 1:
        others = same_files(http, sources(wish.sources), repository)
    return WantedModel(
        f"{name.id}:{chosen.quantization}", chosen.quantization, repository.source, chosen.files, name.id, name.id,
        repository.commit, others,
    )  # fmt: skip


def _repository(name: RepositoryName, wish: PullWish, settings: Settings, http: Http | None) -> Repository:
    if http is None:
        return cached_repository(hub_cache(), name.id, name.revision)
    similar = [each.id for profile in catalogue(settings).values() for each in profile.repositories]
    return find_repository(http, sources(wish.sources), name.id, name.revision, similar)


def _planned_set(name: RepositoryName, sets: list[GgufSet], wish: PullWish, settings: Settings) -> GgufSet:
    """The largest that fits on this machine. DoesNotFitError where none does."""
    question = Question(wish.wishes, sources=wish.sources)
    planned = planned_from_hub(name, question, settings, machine_facts(settings), engine_abilities())
    plan = planned.plan
    if plan.verdict.kind == "does not fit" and not wish.force:
        raise DoesNotFitError(
            f"{name.id}: of what it offers, not even {plan.quantization} runs here: {plan.verdict.message}; take "
            "another model, or name a quantization with --quant",
            plan.verdict.change,
        )
    note(f"{plan.quantization} is the one for this machine: {plan.verdict.kind} (`ktdesk plan {name.id}` says more)")
    return named_set(sets, plan.quantization, name.id)


def _wanted_url(url: str) -> WantedModel:
    """Its folder is that of the URL, its name the whole of it without the scheme."""
    one, parts = url_set(url), urlsplit(url)
    folders = [part for part in unquote(parts.path).split("/")[:-1] if part not in ("", ".", "..")]
    folder = "/".join([parts.netloc.replace(":", "_"), *folders])
    first = one.files[0].path.removesuffix(".gguf")
    return WantedModel(f"{folder}/{first}", first, url, one.files, folder)


class PullProgress(Watcher):
    """On standard error: a line that is rewritten, or without a terminal one at each tenth."""

    def __init__(self) -> None:
        self.report = Progress()
        self._name, self._is_shown, self._next_share = "", False, 0.0

    def begin(self, name: str) -> None:
        self._name = name

    def saw(self, state: TransferState) -> None:
        if not self._is_shown:
            self.report.step(f"fetching {self._name}")
            self._is_shown = True
        rest = rate_text(state)
        self.report.advance(state.done_bytes, state.total_bytes, rest)
        share = state.done_bytes / max(state.total_bytes, 1)
        if not self.report.rewrites and share >= self._next_share:
            tell(f"{share:4.0%} of {bytes_text(state.total_bytes)}, {rest}")
            self._next_share = share + SHARE_OF_A_LINE

    def note(self, text: str) -> None:
        self.report.finish()
        self._is_shown = False
        note(on_one_line(text))

    def finish(self) -> None:
        self.report.finish()


def rate_text(state: TransferState) -> str:
    if state.done_bytes == state.total_bytes:
        return f"checking, {bytes_text(state.total_bytes - state.checked_bytes)} to go"
    if state.quiet_seconds >= QUIET_SECONDS:
        trouble = f": {state.trouble}" if state.trouble else ""
        return f"nothing for {state.quiet_seconds:.0f} s{trouble}"
    left = "" if state.seconds_left is None else f", {_time_text(state.seconds_left)} left"
    return f"{bytes_text(state.bytes_s)}/s{left}"


def _time_text(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.0f} s"
    if seconds < 3600:
        return f"{seconds / 60:.0f} min"
    return f"{seconds // 3600:.0f} h {seconds % 3600 / 60:.0f} min"


def _tell_end(pulled: PulledModel, seconds: float) -> None:
    name = on_one_line(pulled.record.name)
    if pulled.is_outdated:
        note(f"{name} is here; its source has other files now: --update fetches them")
        return
    if pulled.record.problem is not None:
        note(f"{name} is here, but it is no model that can be opened: {on_one_line(pulled.record.problem)}")
        return
    unknown = [file.path for file in pulled.record.files if file.sha256 is None]
    checked = (
        "its SHA-256 is right" if not unknown else "its source tells no SHA-256: only the size is known to be right"
    )
    came = f", {bytes_text(pulled.fetched_bytes)} fetched in {_time_text(seconds)}" if pulled.fetched_bytes else ""
    note(f"{name} is here, {bytes_text(pulled.record.num_bytes)}; {checked}{came}. Run it with: ktdesk chat {name}")


def pulled_facts(pulled: Pulled) -> dict[str, Any]:
    record = asdict(pulled.model.record)
    return {
        "name": record["name"],
        "path": str(pulled.model.path),
        "fetched_bytes": pulled.model.fetched_bytes,
        "seconds": pulled.seconds,
        "is_outdated": pulled.model.is_outdated,
        **{key: value for key, value in record.items() if key != "name"},
    }
