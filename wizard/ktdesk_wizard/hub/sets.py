"""The models in a repository: its GGUF files by quantization, shards together, and choosing one by name."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from urllib.parse import quote, unquote, urlsplit

from ktdesk_engine.gguf.shards import ShardName
from ktdesk_wizard.errors import FetchError, WishError
from ktdesk_wizard.hub.location import RemoteFile

_QUANTIZATION = re.compile(
    r"(?:^|[-._/])(?P<name>(?:UD-)?(?:I?Q\d(?:_[A-Z0-9]+)*|TQ\d_\d|BF16|F(?:P)?(?:16|32)|MXFP4(?:_[A-Z0-9]+)*|NVFP4))$",
    re.IGNORECASE,
)
_BESIDE = re.compile(r"(?:^|[-._/])(?:mmproj|imatrix|mtp|lora|vocab|projector)(?:[-._]|$)", re.IGNORECASE)
"""What lies beside models and is none: image encoders, statistics, adapters."""


@dataclass(frozen=True)
class GgufSet:
    """One model: a file, or all its shards."""

    quantization: str
    """As the files' names say it, in capital letters; the file's name where it says none."""
    files: tuple[RemoteFile, ...]
    num_missing: int = 0
    """Shards that the names announce and the repository does not have."""

    @property
    def num_bytes(self) -> int:
        return sum(file.num_bytes or 0 for file in self.files)


def gguf_sets(files: Iterable[RemoteFile]) -> list[GgufSet]:
    """The largest first. Without what lies beside models."""
    groups: dict[tuple[str, str, int], list[RemoteFile]] = {}
    for file in sorted(files, key=lambda file: file.path):
        if file.path.lower().endswith(".gguf") and not _BESIDE.search(
            file.path.rpartition("/")[2].removesuffix(".gguf")
        ):
            groups.setdefault(_group(file.path), []).append(file)
    sets = [_set(stem, total, members) for (_, stem, total), members in groups.items()]
    return sorted(_distinct(sets), key=lambda each: each.num_bytes, reverse=True)


def _group(path: str) -> tuple[str, str, int]:
    """(folder, name without number, how many there should be)"""
    folder, _, name = path.rpartition("/")
    shard = ShardName.parse(name)
    if shard is None:
        return folder, name.removesuffix(".gguf"), 1
    return folder, shard.stem, shard.total


def _set(stem: str, total: int, members: list[RemoteFile]) -> GgufSet:
    folder = members[0].path.rpartition("/")[0]
    return GgufSet(_quantization(stem, folder), tuple(members), total - len(members))


def _quantization(stem: str, folder: str) -> str:
    """Of the file's name, else of its folder's, else the file's name."""
    for text in (stem, folder.rpartition("/")[2]):
        found = _QUANTIZATION.search(text)
        if found is not None:
            return found["name"].upper()
    return stem


def _distinct(sets: Sequence[GgufSet]) -> list[GgufSet]:
    """Where two models of one repository have the same quantization, they are called by their files' names."""
    names = [each.quantization for each in sets]
    return [
        each if names.count(each.quantization) == 1 else GgufSet(_stem(each), each.files, each.num_missing)
        for each in sets
    ]


def _stem(each: GgufSet) -> str:
    name = each.files[0].path.rpartition("/")[2]
    shard = ShardName.parse(name)
    return name.removesuffix(".gguf") if shard is None else shard.stem


def repository_sets(repository: str, files: Iterable[RemoteFile]) -> list[GgufSet]:
    """Those that can be chosen from. FetchError where the repository has none."""
    files = list(files)
    sets = gguf_sets(files)
    if sets:
        return sets
    kinds = sorted({file.path.rpartition(".")[2] for file in files if file.path.endswith((".safetensors", ".bin"))})
    has = f"it has the original weights ({', '.join(kinds)})" if kinds else "it has no weights at all"
    raise FetchError(f"{repository} has no GGUF files: {has}; look for a repository called like it with -GGUF")


def url_set(url: str) -> GgufSet:
    """The file at a URL; of a shard, all of its set, which lie beside it."""
    parts = urlsplit(url)
    folder, _, name = parts.path.rpartition("/")
    shard = ShardName.parse(unquote(name))
    names = [unquote(name)]
    if shard is not None:
        names = [str(shard._replace(number=number)) for number in range(1, shard.total + 1)]
    if not names[0].lower().endswith(".gguf"):
        raise WishError(f"{url}: not the address of a GGUF file, whose path ends with .gguf")
    files = [
        RemoteFile(each, parts._replace(path=f"{folder}/{quote(each)}").geturl(), None, None, None, parts.netloc)
        for each in names
    ]
    return GgufSet(_quantization(names[0].removesuffix(".gguf") if shard is None else shard.stem, ""), tuple(files))


def named_set(sets: Sequence[GgufSet], quantization: str, repository: str) -> GgufSet:
    """FetchError, with those that are offered, for any other. `4_k_m` and `q4_k_m` mean Q4_K_M."""
    low = quantization.lower()
    for meant in (low, f"q{low}", f"ud-{low}"):
        for each in sets:
            if each.quantization.lower() == meant:
                return checked_set(each, repository)
    names = [each.quantization for each in sets]
    close = difflib.get_close_matches(quantization.upper(), names, n=1)
    advice = f"did you mean {close[0]}? " if close else ""
    raise FetchError(f"{repository} has no {quantization}: {advice}It offers {', '.join(names)}")


def set_with(sets: Sequence[GgufSet], path: str, repository: str) -> GgufSet:
    """That a file belongs to."""
    for each in sets:
        if any(file.path == path for file in each.files):
            return checked_set(each, repository)
    raise FetchError(f"{repository} has no model file {path}; it offers {', '.join(s.quantization for s in sets)}")


def checked_set(each: GgufSet, repository: str) -> GgufSet:
    if each.num_missing:
        total = len(each.files) + each.num_missing
        raise FetchError(
            f"{repository}: of {each.quantization}, {each.num_missing} of {total} shards are missing at the source: "
            "its upload goes on or failed; take another quantization, or ask its owner"
        )
    return each
