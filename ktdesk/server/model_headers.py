"""What the headers of model files say, for lists of models: weights are not read, and nothing is loaded."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ktdesk.server.known_models import KnownModel
from ktdesk_engine.chat.source import TemplateSource
from ktdesk_engine.errors import EngineError
from ktdesk_engine.gguf.file import GGUFFile
from ktdesk_wizard.plan.model import model_of_file


@dataclass(frozen=True)
class ModelHeader:
    architecture: str = ""
    quantization: str = ""
    """The type that most bytes have."""
    num_values: int = 0
    context_length: int | None = None
    """Tokens that it was trained for."""
    template: str = ""
    keys: Mapping[str, Any] = field(default_factory=dict)
    """Those with one value, without the tokenizer's."""
    problem: str | None = None
    """Why it cannot be read."""

    @property
    def size_label(self) -> str:
        """Such as 30.5B."""
        billions = self.num_values / 1e9
        return f"{billions:.1f}B" if billions >= 1 else f"{1000 * billions:.0f}M"


class ModelHeaders:
    """Reads each file once, and again when it changed. Takes its time: not for the event loop. Threads may share it."""

    def __init__(self) -> None:
        self._read: dict[str, tuple[float, ModelHeader]] = {}
        self._lock = threading.Lock()

    def of(self, model: KnownModel) -> ModelHeader:
        name, changed = str(model.path), model.modified
        with self._lock:
            if name not in self._read or self._read[name][0] != changed:
                self._read[name] = changed, _header(model)
            return self._read[name][1]


def _header(model: KnownModel) -> ModelHeader:
    try:
        with GGUFFile.open(model.path) as file:
            keys = {name: value for name, value in file.metadata.items() if _is_shown(name, value)}
            templates = TemplateSource.from_gguf(file).templates
            header = ModelHeader(file.architecture, template=next(iter(templates.values()), ""), keys=keys)
    except (EngineError, OSError) as error:
        return ModelHeader(problem=" ".join(str(error).split()))
    return _with_sizes(model, header)


def _with_sizes(model: KnownModel, header: ModelHeader) -> ModelHeader:
    """Of what the planner does not know, only the keys are told."""
    try:
        planned = model_of_file(model.path)
    except (EngineError, OSError):
        return header
    return ModelHeader(
        header.architecture,
        planned.quantization,
        planned.num_values,
        planned.context_length,
        header.template,
        header.keys,
    )


def _is_shown(name: str, value: object) -> bool:
    return isinstance(value, (str, int, float, bool)) and not name.startswith("tokenizer.")
