"""Where models are kept: how much room there is, on what, and how fast it is read."""

from __future__ import annotations

import mmap
import os
import re
import time
from pathlib import Path

from ktdesk_engine.system_files import text_of
from ktdesk_wizard.probe.fact import Fact, measured, reported, unknown
from ktdesk_wizard.probe.machine_facts import DiskFacts

MOUNTS = "proc/self/mountinfo"
READ_BYTES = 8 << 20
"""In one call: about what the loader has in flight."""
MAX_READ_SECONDS = 0.4
MIN_SAMPLE_BYTES = 64 << 20


def read_disk(root: Path, folder: Path) -> DiskFacts:
    """folder: absolute. It need not exist yet: then the nearest that does is looked at."""
    place = folder
    while not (root / place.relative_to("/")).exists() and place != place.parent:
        place = place.parent
    real = root / place.relative_to("/")
    return DiskFacts(
        folder=str(folder),
        filesystem=_filesystem(root, place),
        free_bytes=_free(real, place),
        is_writable=reported(os.access(real, os.W_OK | os.X_OK), f"access of {place}"),
        read_bytes_s=_read_speed(real),
    )


def _filesystem(root: Path, folder: Path) -> Fact[str]:
    """Of the longest mount point above the folder; the later of two on one place hides the other."""
    best, kind = "", ""
    for line in text_of(root / MOUNTS).splitlines():
        before, _, after = line.partition(" - ")
        fields = before.split(" ")
        if len(fields) < 5 or not after:
            continue
        point = re.sub(r"\\(\d{3})", lambda code: chr(int(code.group(1), 8)), fields[4])
        if len(point) >= len(best) and folder.is_relative_to(point):
            best, kind = point, after.split(" ")[0]
    return reported(kind, f"/{MOUNTS}: mounted at {best}") if kind else unknown(f"/{MOUNTS} names no mount above it")


def _free(real: Path, folder: Path) -> Fact[int]:
    try:
        status = os.statvfs(real)
    except OSError as error:
        return unknown(f"statvfs of {folder}: {error.strerror}")
    return reported(status.f_bavail * status.f_frsize, f"statvfs of {folder}")


def _read_speed(folder: Path) -> Fact[float]:
    """Of the largest file there, past the page cache; nothing is written to find it out."""
    largest = max(_files(folder), default=None)
    if largest is None or largest[0] < MIN_SAMPLE_BYTES:
        return unknown(f"no file of {MIN_SAMPLE_BYTES >> 20} MiB is there to read")
    num_bytes, path = largest
    try:
        return measured(_sample(path, num_bytes), f"read of {path.name}, {READ_BYTES >> 20} MiB at a time, O_DIRECT")
    except OSError as error:
        return unknown(f"{path.name} cannot be read past the page cache: {error.strerror}")


def _files(folder: Path, depth: int = 2) -> list[tuple[int, Path]]:
    found: list[tuple[int, Path]] = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.is_file(follow_symlinks=False) and entry.name.endswith((".gguf", ".safetensors")):
                    found.append((entry.stat().st_size, Path(entry.path)))
                elif depth and entry.is_dir(follow_symlinks=False):
                    found += _files(Path(entry.path), depth - 1)
    except OSError:  # a folder of somebody else's holds nothing for us
        return found
    return found


def _sample(path: Path, num_bytes: int) -> float:
    """Bytes a second. Reads from the middle on, where a loader that was stopped has cached least."""
    file = os.open(path, os.O_RDONLY | os.O_DIRECT)
    try:
        with mmap.mmap(-1, READ_BYTES) as buffer:
            offset, total = num_bytes // 2 // READ_BYTES * READ_BYTES, 0
            start = time.perf_counter()
            while offset + READ_BYTES <= num_bytes and time.perf_counter() - start < MAX_READ_SECONDS:
                total += os.preadv(file, [buffer], offset)
                offset += READ_BYTES
            return total / (time.perf_counter() - start)
    finally:
        os.close(file)
