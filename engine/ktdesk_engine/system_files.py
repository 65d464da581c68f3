"""The small text files in which the system tells of itself, below /sys and /proc, and the notations in them.

What cannot be read is empty: each reader says what it makes of that.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

UNITS = {"K": 2**10, "M": 2**20, "G": 2**30}


def text_of(path: Path) -> str:
    """Empty where the file cannot be read."""
    try:
        return path.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""


def cpu_list(text: str) -> Iterator[int]:
    """Such as 0-3,8,10-11."""
    for part in text.split(","):
        first, _, last = part.partition("-")
        if first:
            yield from range(int(first), int(last or first) + 1)


def size_bytes(text: str) -> int:
    """Such as 32768K; 0 for what is no size."""
    digits = text.rstrip("KMG")
    return int(digits) * UNITS.get(text[-1:], 1) if digits.isdigit() else 0


def cgroup_folders(root: Path, controller: str) -> Iterator[Path]:
    """Of the group in which the controller (cpu, memory) accounts for this process, and of the groups around it, as
    far as they are mounted; the outermost first.

    In a container the path may be one of the host's, which is not there: then only the mount itself counts.
    """
    for line in text_of(root / "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        names = controllers.split(",")
        if controllers and controller not in names:
            continue
        mounts = [controllers, controller] if controllers else ["", "unified"]
        for mount in dict.fromkeys(mounts):
            group = root / "sys/fs/cgroup" / mount
            for part in ("", *Path(path).parts[1:]):
                group /= part
                yield group
