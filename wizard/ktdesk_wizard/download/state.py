"""How far a transfer is, for whoever watches it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class FileState:
    name: str
    total_bytes: int
    done_bytes: int


@dataclass(frozen=True)
class TransferState:
    total_bytes: int
    done_bytes: int
    """Of the total, on the disk. Less than before where something wrong is fetched again."""
    fetched_bytes: int
    """That came over the network in this run."""
    checked_bytes: int
    """Of the total, that are in a SHA-256 already."""
    bytes_s: float
    """Over the last ten seconds; 0 when it stalls."""
    seconds_left: float | None
    """None: nothing comes, or nothing has come yet."""
    quiet_seconds: float
    """Since the last byte came."""
    num_connections: int
    trouble: str | None
    """What went wrong last, as long as nothing came since."""
    files: tuple[FileState, ...] = ()
    """Each that is fetched, in order."""


class Watcher:
    """Who is not interested. Others derive from it."""

    def saw(self, state: TransferState) -> None:
        """Several times a second."""

    def note(self, text: str) -> None:
        """Something that people may want to know: a source was changed, a file is fetched again."""
