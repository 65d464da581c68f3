"""Models of the store, for people and as JSON: which are meant, and what is known of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

from ktdesk.errors import UsageError
from ktdesk.settings import Settings
from ktdesk.terminal import Progress, on_one_line
from ktdesk_engine.errors import ModelFileError
from ktdesk_wizard.store.checking import CheckedFile, verify
from ktdesk_wizard.store.models import StoredModel, stored_models
from ktdesk_wizard.store.names import find_models
from ktdesk_wizard.store.opening import note_problem, problem_of


def looked_at(model: StoredModel) -> StoredModel:
    """Plain files with what their headers say: of what was pulled the record knows it."""
    if model.record_path is not None or model.state != "whole":
        return model
    return replace(model, record=replace(model.record, problem=problem_of(model.path)))


def model_facts(model: StoredModel) -> dict[str, Any]:
    return {
        "name": model.name,
        "path": str(model.path),
        "state": model.state,
        "num_bytes": model.num_bytes,
        "num_files": len(model.record.files),
        "num_present": model.num_present,
        **{key: value for key, value in asdict(model.record).items() if key != "name"},
    }


def state_text(model: StoredModel) -> str:
    """Short, for a column."""
    if model.state == "partial":
        return f"{model.num_present} of {len(model.record.files)} files"
    return model.state


def problem_text(model: StoredModel) -> str:
    """To stand behind its name."""
    return f": {on_one_line(model.record.problem)}" if model.state == "unusable" and model.record.problem else ""


def chosen_models(settings: Settings, names: Sequence[str] | None) -> list[StoredModel]:
    """Those that are meant; all without names. ModelFileError where a name means none, UsageError where several."""
    models = stored_models(settings.models_folder)
    if not names:
        return models
    return [only_model(name, models) for name in names]


def only_model(name: str, models: Sequence[StoredModel], repositories: Sequence[str] = ()) -> StoredModel:
    found = find_models(name, models, repositories)
    if not found:
        raise ModelFileError(name, "no model of the store is called so; `ktdesk models` lists what is there")
    if len(found) > 1:
        raise UsageError(f"{name!r} may be {' or '.join(model.name for model in found)}: name one of them")
    return found[0]


def verified_facts(model: StoredModel) -> dict[str, Any]:
    """Reads all files, with progress on standard error."""
    progress = Progress()
    progress.step(f"checking {model.name}")
    done_bytes = 0

    def advance(num_bytes: int) -> None:
        nonlocal done_bytes
        done_bytes += num_bytes
        progress.advance(done_bytes, model.num_bytes)

    try:
        files = [_file_facts(file) for file in verify(model, advance)]
    finally:
        progress.erase()
    is_right = all(file["finding"] in ("right", "no hash is known") for file in files)
    return {"name": model.name, "files": files, "problem": note_problem(model) if is_right else None}


def _file_facts(file: CheckedFile) -> dict[str, Any]:
    return {**asdict(file), "path": on_one_line(str(file.path))}
