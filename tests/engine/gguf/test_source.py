"""What is no GGUF file is told for what it is, with what to do."""

from __future__ import annotations

import errno
import io
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from ktdesk_engine.errors import ModelFileError
from ktdesk_engine.gguf.file import GGUFFile

LFS_POINTER = (
    b"version https://git-lfs.github.com/spec/v1\n"
    b"oid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\nsize 4920739232\n"
)
SAFETENSORS = (64).to_bytes(8, "little") + b'{"__metadata__":{"format":"pt"}}'.ljust(64) + bytes(64)


def zip_bytes() -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        # With a date of its own: by default an entry has that of the clock.
        archive.writestr(zipfile.ZipInfo("archive/data.pkl"), b"")
    return stream.getvalue()


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"GG", "only the first 2 bytes of one: fetch it again"),
        (b"<!DOCTYPE html><html><body>Sign in</body></html>", "a web page (HTML or XML)"),
        (b"\xef\xbb\xbf\n <html>", "a web page"),
        (b'<?xml version="1.0"?><Error><Code>AccessDenied</Code></Error>', "a web page"),
        (LFS_POINTER, "a Git LFS pointer to the real file of 4920739232 bytes: run 'git lfs pull' in its"),
        (b"version https://git-lfs.github.com/spec/v1\nsize ", "a Git LFS pointer to the real file"),
        (b'{"error":"Repository not found"}', "JSON, such as a server's error answer: '{\"error\":"),
        (b"Entry not found", "text that begins with 'Entry not found'; fetch it again"),
        (zip_bytes(), "a zip archive, as PyTorch writes checkpoints"),
        (b"\x80\x02\x8a\nl\xfc\x9cF\xf9", "a Python pickle"),
        (SAFETENSORS, "a safetensors file: take the GGUF version of the model"),
        (b"tjgg\3\0\0\0" + bytes(64), "a GGJT file of before GGUF"),
        (b"FUGG\0\0\0\3" + bytes(64), "a GGUF file whose bytes were swapped"),
        (b"\x1f\x8b\x08" + bytes(64), "compressed with gzip: unpack it first"),
        (bytes(4096), "4,096 bytes that begin with zeros: a download that has not finished"),
        (b"\xff\xfe\xfa\xfb" + b"\x90" * 64, "unknown data that begins with the bytes ff fe fa fb"),
    ],
)
def test_a_file_of_another_kind_is_named(data: bytes, problem: str, tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(data)
    with pytest.raises(ModelFileError) as caught:
        GGUFFile.open(path)
    message = str(caught.value)
    assert message.startswith(f"{path}: not a GGUF file but {problem}")
    assert "\n" not in message


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"", "the file is empty: its download failed or has not begun; fetch it again"),
        (b"GGUF", "the version takes 4 bytes from byte 4 on, but the file has only 4"),
    ],
)
def test_a_file_that_hardly_begins_is_told_so(data: bytes, problem: str, tmp_path: Path) -> None:
    (tmp_path / "m.gguf").write_bytes(data)
    with pytest.raises(ModelFileError, match=problem):
        GGUFFile.open(tmp_path / "m.gguf")


def test_a_missing_file_names_those_beside_it(tmp_path: Path) -> None:
    for name in "abcdefg":
        (tmp_path / f"{name}.gguf").touch()
    with pytest.raises(ModelFileError) as caught:
        GGUFFile.open(tmp_path / "model.gguf")
    beside = f"give one of those in {tmp_path}: a.gguf, b.gguf, c.gguf, d.gguf, e.gguf and 2 more"
    assert caught.value.problem == f"no such file; {beside}"


def test_a_link_to_nothing_is_told_and_not_suggested(tmp_path: Path) -> None:
    (tmp_path / "m.gguf").symlink_to("gone.gguf")
    with pytest.raises(ModelFileError) as caught:
        GGUFFile.open(tmp_path / "m.gguf")
    assert caught.value.problem == (f"a link to gone.gguf, which is not there; there are no .gguf files in {tmp_path}")


def test_a_folder_that_may_not_be_listed_is_not_said_to_be_empty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(folder: Path) -> list[str]:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(folder))

    monkeypatch.setattr(os, "listdir", refuse)
    with pytest.raises(ModelFileError, match=f"the folder {tmp_path} cannot be read: Permission denied"):
        GGUFFile.open(tmp_path / "model.gguf")


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match=rf"no such file; there is no folder {tmp_path / 'nowhere'} either"):
        GGUFFile.open(tmp_path / "nowhere" / "model.gguf")


@pytest.mark.parametrize("name", ["models", "model-00001-of-00002.gguf"])
def test_a_folder_says_whether_it_has_models(name: str, tmp_path: Path) -> None:
    folder = tmp_path / name
    folder.mkdir()
    with pytest.raises(ModelFileError, match=r"a folder, where a file is needed; there are no \.gguf files in "):
        GGUFFile.open(folder)
    (folder / "m.gguf").touch()
    with pytest.raises(ModelFileError, match=r"a folder, where a file is needed; give one of those in .*: m\.gguf"):
        GGUFFile.open(folder)


def test_a_pipe_is_refused_without_waiting_for_it(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "m.gguf")
    with pytest.raises(ModelFileError, match="a device, pipe or socket"):
        GGUFFile.open(tmp_path / "m.gguf")


@pytest.mark.parametrize("name", ["a\0b.gguf", "n" * 300 + ".gguf"])
def test_a_path_that_cannot_be_is_a_clear_error(name: str, tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match=r"cannot be read: (embedded null|File name too long)"):
        GGUFFile.open(tmp_path / name)


def test_no_address_space_for_the_mapping_is_a_lack_of_resources(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(b"GGUF")
    os.truncate(path, 64 << 30)  # sparse
    script = f"""
import resource
from ktdesk_engine.errors import ResourceError
from ktdesk_engine.gguf.file import GGUFFile
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (1 << 30),) * 2)
try:
    GGUFFile.open({str(path)!r})
except ResourceError as error:
    print(error)
"""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    run = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        timeout=60,
        env=environment,
        check=True,
    )
    assert run.stdout.strip() == f"{path}: no address space left to map 68,719,476,736 bytes; raise ulimit -v"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_we_may_not_read_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "m.gguf").write_bytes(b"GGUF")
    (tmp_path / "m.gguf").chmod(0)
    with pytest.raises(ModelFileError, match="cannot be read: Permission denied"):
        GGUFFile.open(tmp_path / "m.gguf")
