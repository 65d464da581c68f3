"""From a path to the mapped bytes of one GGUF file, or to a sentence that says what the path is instead."""

from __future__ import annotations

import errno
import mmap
import os
import stat
from pathlib import Path

from ktdesk_engine.errors import ModelFileError, ResourceError

MAGIC = b"GGUF"
_HEAD_BYTES = 512
_FETCH_AGAIN = "fetch it again"

_BINARY_MAGICS = {
    b"FUGG": "a GGUF file whose bytes were swapped",
    b"lmgg": "a GGML file of before GGUF: convert the original model again",
    b"fmgg": "a GGMF file of before GGUF: convert the original model again",
    b"tjgg": "a GGJT file of before GGUF: convert the original model again",
    b"PK\x03\x04": "a zip archive, as PyTorch writes checkpoints: take the GGUF version of the model",
    b"\x80\x02": "a Python pickle, as old PyTorch checkpoints are: take the GGUF version of the model",
    b"\x93NUMPY": "a numpy array: take the GGUF version of the model",
    b"\x1f\x8b": "compressed with gzip: unpack it first",
    b"\x28\xb5\x2f\xfd": "compressed with zstd: unpack it first",
    b"\xfd7zXZ": "compressed with xz: unpack it first",
    b"7z\xbc\xaf": "a 7z archive: unpack it first",
    b"\x7fELF": "a program or library",
}


def map_gguf(path: Path) -> mmap.mmap:
    """Map the file read-only, having seen that it begins as GGUF does. The file is never written."""
    size = _regular_file_bytes(path)
    if size == 0:
        raise ModelFileError(path, f"the file is empty: its download failed or has not begun; {_FETCH_AGAIN}")
    try:
        with path.open("rb") as file:
            mapping = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError) as error:
        if isinstance(error, OSError) and error.errno == errno.ENOMEM:
            raise ResourceError(f"{path}: no address space left to map {size:,} bytes; raise ulimit -v") from error
        raise ModelFileError(path, f"cannot be read: {_reason(error)}") from error
    head = mapping[:_HEAD_BYTES]
    if not head.startswith(MAGIC):
        raise ModelFileError(path, f"not a GGUF file but {describe_foreign(head, size)}")
    return mapping


def _regular_file_bytes(path: Path) -> int:
    try:
        status = path.stat()
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        if isinstance(error, (FileNotFoundError, NotADirectoryError)):
            what = f"a link to {os.readlink(path)}, which is not there" if path.is_symlink() else "no such file"
            raise ModelFileError(path, f"{what}; {_neighbours(path.parent)}") from error
        raise ModelFileError(path, f"cannot be read: {_reason(error)}") from error
    if stat.S_ISDIR(status.st_mode):
        raise ModelFileError(path, f"a folder, where a file is needed; {_neighbours(path)}")
    if not stat.S_ISREG(status.st_mode):
        raise ModelFileError(path, "a device, pipe or socket: a model must be a regular file, to be mapped")
    return status.st_size


def _reason(error: OSError | ValueError) -> str:
    return (error.strerror or str(error)) if isinstance(error, OSError) else str(error)


def _neighbours(folder: Path) -> str:
    """Which GGUF files there are to choose from: the second half of a message."""
    if not os.path.isdir(folder):  # unlike Path.is_dir, False also where we may not look
        return f"there is no folder {folder} either"
    try:
        names = sorted(name for name in os.listdir(folder) if name.endswith(".gguf") and (folder / name).exists())
    except OSError as error:
        return f"the folder {folder} cannot be read: {_reason(error)}"
    if not names:
        return f"there are no .gguf files in {folder}"
    shown = ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
    return f"give one of those in {folder}: {shown}"


def describe_foreign(head: bytes, size: int) -> str:
    """What a file is that begins with `head` (its first bytes, 512 at most) and is no GGUF; what to do."""
    if MAGIC.startswith(head):
        return f"only the first {size} bytes of one: {_FETCH_AGAIN}"
    for magic, meaning in _BINARY_MAGICS.items():
        if head.startswith(magic):
            return meaning
    if not any(head):
        return f"{size:,} bytes that begin with zeros: a download that has not finished; {_FETCH_AGAIN}"
    if head[8:9] == b"{" and int.from_bytes(head[:8], "little") < size:
        return "a safetensors file: take the GGUF version of the model"
    return _describe_text(head) or f"unknown data that begins with the bytes {head[:4].hex(' ')}"


def _describe_text(head: bytes) -> str | None:
    text = head.decode("utf-8", errors="ignore").removeprefix("\ufeff").lstrip()
    if text.startswith("version https://git-lfs"):
        sizes = [line.split()[-1] for line in text.splitlines() if line.startswith("size ")]
        real = f" of {sizes[0]} bytes" if sizes else ""
        return f"a Git LFS pointer to the real file{real}: run 'git lfs pull' in its repository"
    if text.startswith("<"):
        return "a web page (HTML or XML), such as an error or sign-in page: download the file itself"
    start = ascii(text.split("\n")[0][:80])
    if text.startswith(("{", "[")):
        return f"JSON, such as a server's error answer: {start}; {_FETCH_AGAIN}"
    if all(32 <= byte < 127 or byte in b"\t\n\r" for byte in head):
        return f"text that begins with {start}; {_FETCH_AGAIN}"
    return None
