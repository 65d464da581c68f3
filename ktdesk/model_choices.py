"""A model that could be set up, and how it would do on this machine. Values alone: `model_outlook` finds them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from ktdesk_wizard.plan.plan import VerdictKind

Kind = Literal["demo", "here", "partial", "catalogue"]


@dataclass(frozen=True)
class ModelChoice:
    kind: Kind
    name: str
    """As `ktdesk setup` takes it."""
    title: str
    num_bytes: int | None
    """Of the file; None: that depends on the quantization."""
    billions: float | None = None
    """Weights; None: not said without reading the file."""
    path: Path | None = None
    """Where it is here."""


@dataclass(frozen=True)
class Outlook:
    """How a model would do on this machine."""

    verdict: VerdictKind
    message: str
    quantization: str
    file_bytes: int
    memory_bytes: int
    context: int
    min_tok_s: float | None
    max_tok_s: float | None
    """Decoding."""


def file_choice(path: Path) -> ModelChoice | None:
    """None where it leads nowhere."""
    try:
        return ModelChoice("here", str(path), path.name, path.stat().st_size, None, path)
    except OSError:
        return None


def named_choice(name: str) -> ModelChoice:
    """What somebody typed: a repository, an address or a path."""
    path = Path(name).expanduser()
    found = file_choice(path) if path.is_file() else None
    return found or ModelChoice("catalogue", name, name, None)
