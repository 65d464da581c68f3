"""What MODEL on the command line means: a file, `demo`, or a model of the store."""

from __future__ import annotations

import contextlib
import difflib
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from ktdesk.errors import UsageError
from ktdesk.settings import DEMO_VARIABLE, Settings
from ktdesk.terminal import Progress, note, on_one_line
from ktdesk_engine.errors import ModelFileError

if TYPE_CHECKING:
    from ktdesk_wizard.report import Report

DEMO = "demo"
_REPOSITORY = re.compile(r"(?!\.)[\w.-]+/[\w.-]+(:[\w.-]+)?")


def model_path(model: str, settings: Settings) -> Path:
    """The file to load. The demo model is made if it is not there."""
    check_named(model)
    if model == DEMO:
        return demo_path(settings)
    path = Path(model)
    if os.path.lexists(path):
        return path
    found = _stored_path(model, settings) or served_path(model, settings)
    if found is not None:
        return found
    similar = _similar(path)
    if similar:
        raise ModelFileError(path, f"no such file; did you mean {' or '.join(str(match) for match in similar)}?")
    if not model.endswith(".gguf") and (os.sep not in model or _REPOSITORY.fullmatch(model)):
        raise ModelFileError(path, f"neither a file nor a model of the store; {_nearest_text(model, settings)}")
    return path


def check_named(model: str) -> None:
    """UsageError where nothing is named, as by a variable of a script that is not set."""
    if not model.strip():
        raise UsageError("MODEL is empty: name a file, or what `ktdesk models` or `ktdesk plan --list` shows")


def check_quantization(model: str, quantization: str | None) -> None:
    """UsageError for a --quant without a word, or with another than the model's name has."""
    if quantization is None:
        return
    if not quantization.strip():
        raise UsageError("--quant is empty: say which, or leave it out")
    named = "" if "://" in model else model.partition(":")[2]
    if named and named.lower() != quantization.lower():
        raise UsageError(
            f"{on_one_line(model)} and --quant {quantization} contradict each other: leave one of them out"
        )


def _nearest_text(model: str, settings: Settings) -> str:
    """Which models of the store, and files that servers have loaded, are called almost so."""
    from ktdesk.server_records import files_of, running_servers
    from ktdesk_wizard.store.models import stored_models

    meant = {stored.name.lower(): stored.name for stored in stored_models(settings.models_folder)}
    meant |= {name.rpartition("/")[2]: full for name, full in meant.items()}
    meant |= {name.partition(":")[0].removesuffix("-gguf"): full for name, full in meant.items()}
    with contextlib.suppress(OSError):
        for record in running_servers(settings):
            meant |= {name.lower(): path for name, path in {record.model: record.path, **files_of(record)}.items()}
    low = model.lower().removesuffix(".gguf")
    close = [name for name in meant if low in name] or difflib.get_close_matches(low, meant, cutoff=0.5)
    names = list(dict.fromkeys(on_one_line(meant[name]) for name in close))[:3]
    advice = f"did you mean {' or '.join(names)}? " if names else ""
    return f"{advice}`ktdesk models` lists those, `ktdesk pull` fetches others"


def _stored_path(model: str, settings: Settings) -> Path | None:
    """None where the store has no model of that name."""
    from ktdesk_wizard.store.models import stored_models
    from ktdesk_wizard.store.names import find_models

    found = find_models(model, stored_models(settings.models_folder), _repositories(model, settings))
    whole = [each for each in found if each.state == "whole"]
    if len(whole) > 1:
        names = " or ".join(each.name for each in whole)
        raise UsageError(f"{on_one_line(model)!r} may be {names}: name one of them")
    if found and not whole:
        if found[0].state == "unusable":
            problem = f"no model that can be opened: {found[0].record.problem}"
            raise ModelFileError(found[0].path, f"{problem}; `ktdesk models rm {found[0].name}` deletes it")
        have = f"{found[0].num_present} of {len(found[0].record.files)} files are there and whole"
        raise ModelFileError(found[0].path, f"{have}: `ktdesk pull {found[0].name}` fetches the rest")
    return whole[0].path if whole else None


def served_path(model: str, settings: Settings) -> Path | None:
    """Of what a server of this user was started with, or has in memory: `ktdesk ps` lists it by its name, wherever
    its file lies."""
    from ktdesk.server_records import files_of, running_servers

    low = model.lower()
    with contextlib.suppress(OSError):
        records = running_servers(settings)
        paths = {record.path for record in records if record.model.lower() == low}
        paths = paths or {path for record in records for name, path in files_of(record).items() if name.lower() == low}
        if len(paths) == 1:
            return Path(paths.pop())
    return None


def _repositories(model: str, settings: Settings) -> list[str]:
    """Of a name of the catalogue: where files of it are."""
    from ktdesk_profiles.models import load_models

    profile = load_models(settings.data_folder / "profiles" / "models").get(model.lower())
    return [] if profile is None else [repository.id for repository in profile.repositories]


def demo_path(settings: Settings, source: Path | None = None, report: Report | None = None) -> Path:
    """source: the file to make the demo model from; None fetches it. report: where its progress is told, instead of
    on standard error."""
    made_elsewhere = os.environ.get(DEMO_VARIABLE)
    if made_elsewhere:
        if not os.path.isfile(made_elsewhere):
            raise ModelFileError(made_elsewhere, f"no such file, but {DEMO_VARIABLE} names it: correct or unset it")
        if source is not None:
            note(f"{DEMO_VARIABLE} names the demo model: {on_one_line(str(source))} is not needed")
        return Path(made_elsewhere)
    from ktdesk_profiles.demo import load_demo_profile
    from ktdesk_wizard.demo_model import demo_model

    folder = settings.models_folder / "demo"
    if report is not None:
        return demo_model(load_demo_profile(), folder, source=source, report=report)
    progress = Progress()
    try:
        return demo_model(load_demo_profile(), folder, source=source, report=progress)
    finally:
        progress.finish()


def _similar(path: Path) -> list[Path]:
    """Up to three GGUF files beside it whose names are almost the same."""
    try:
        names = [name for name in os.listdir(path.parent) if name.endswith(".gguf")]
    except OSError:
        return []
    return [path.with_name(name) for name in difflib.get_close_matches(path.name, names)]
