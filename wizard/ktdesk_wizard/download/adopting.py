"""Files that the user has already, found by size, known by hash, and linked rather than copied.

A hard link where that is possible: the same bytes under a second name, of which either may be deleted. Else a
symbolic link, which breaks when the original goes. Nothing of the user's is ever written or moved.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ktdesk_wizard.store.checking import sha256_of
from ktdesk_wizard.store.record import Origin

MIN_BYTES = 1 << 20
"""Smaller files are faster fetched than looked for."""


@dataclass(frozen=True)
class Wanted:
    num_bytes: int
    sha256: str


@dataclass(frozen=True)
class Adopted:
    original: Path
    how: Origin


def usual_folders() -> list[Path]:
    """Where other programs keep models: huggingface_hub, LM Studio, llama.cpp, Ollama."""
    home = Path(os.path.expanduser("~"))
    cache = Path(os.environ.get("XDG_CACHE_HOME") or home / ".cache")
    ollama = Path(os.environ.get("OLLAMA_MODELS") or home / ".ollama" / "models")
    folders = [hub_cache(), home / ".lmstudio" / "models", home / ".cache" / "lm-studio" / "models"]
    return [*folders, Path(os.environ.get("LLAMA_CACHE") or cache / "llama.cpp"), ollama / "blobs"]


def hub_cache() -> Path:
    """Of huggingface_hub, which need not be imported for that."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path(os.path.expanduser("~")) / ".cache")
    home = os.environ.get("HF_HOME") or cache / "huggingface"
    return Path(os.environ.get("HF_HUB_CACHE") or Path(home) / "hub").expanduser()


def files_by_size(folders: Iterable[Path], sizes: Iterable[int], leave_out: Path) -> dict[int, list[Path]]:
    """Regular files that have one of the sizes. leave_out: a folder that is not looked into."""
    wanted = {size for size in sizes if size >= MIN_BYTES}
    found: dict[int, list[Path]] = {}
    for folder in folders if wanted else ():
        for parent, names, files in os.walk(folder):
            names[:] = [name for name in names if Path(parent, name) != leave_out]
            for path in (Path(parent, name) for name in files):
                size = _regular_bytes(path)
                if size in wanted:
                    found.setdefault(size, []).append(path)
    return found


def adopt(
    wanted: Wanted, candidates: Sequence[Path], target: Path, advance: Callable[[int], None] = lambda num_bytes: None
) -> Adopted | None:
    """Links the first candidate that has the hash. None: there is none. Those called like the hash come first."""
    for candidate in sorted(candidates, key=lambda path: wanted.sha256 not in path.name):
        if _hash(candidate, advance) == wanted.sha256:
            return Adopted(candidate, _link(candidate, target))
    return None


def _hash(path: Path, advance: Callable[[int], None]) -> str | None:
    """None where it cannot be read."""
    try:
        return sha256_of(path, advance)
    except OSError:
        return None


def _link(original: Path, target: Path) -> Origin:
    try:
        os.link(original, target)
        return "hard link"
    except OSError:  # another filesystem, or somebody else's file
        target.symlink_to(original.absolute())
        return "symbolic link"


def _regular_bytes(path: Path) -> int:
    """-1 for links and what else is no file. Links of the hub's cache lead to files that are found on their own."""
    try:
        return -1 if path.is_symlink() or not path.is_file() else path.stat().st_size
    except OSError:
        return -1
