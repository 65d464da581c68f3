"""Whether the files of a model, however right their hashes are, are a model that can be opened: headers are read."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from ktdesk_engine.errors import EngineError, ModelFileError
from ktdesk_engine.gguf.file import GGUFFile
from ktdesk_engine.models.registry import families
from ktdesk_wizard.plan.model import model_of_file
from ktdesk_wizard.store.models import StoredModel
from ktdesk_wizard.store.record import read_record, write_record

_ADVICE = re.compile(r"[;:] (fetch it again|take another copy of the model)$")
"""Of the engine, which does not know that the file is what its source has."""


def problem_of(path: Path) -> str | None:
    """Why the model that this file belongs to cannot be opened. None: it can, whether this build runs it or not."""
    try:
        with GGUFFile.open(path) as file:
            if not file.tensors:
                return "it has no tensors"
            is_known = file.architecture in families()
        if is_known:
            model_of_file(path)
    except ModelFileError as error:
        problem = _ADVICE.sub("", error.problem)
        return problem if error.path == path else f"{error.path.name}: {problem}"
    except EngineError:  # sound, but not for this build or this machine
        return None
    return None


def note_problem(model: StoredModel) -> str | None:
    """Of a model whose files are all there. Kept in its record, where it has one."""
    problem = problem_of(model.path)
    if model.record_path is not None:
        record = read_record(model.record_path)
        if record.problem != problem:
            write_record(model.record_path, replace(record, problem=problem))
    return problem
