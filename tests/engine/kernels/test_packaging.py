"""Wide instructions stay in their own files: the same build runs on every machine."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

CSRC = Path(__file__).resolve().parents[3] / "engine" / "csrc"


def flags_of(source: str) -> list[str]:
    """The flags that CMakeLists.txt gives an ISA file."""
    text = (CSRC / "CMakeLists.txt").read_text()
    found = re.search(rf'set_source_files_properties\({re.escape(source)} [^"]*"([^"]*)"', text)
    return found.group(1).split(";") if found else []


@pytest.fixture(scope="module")
def compiler() -> str:
    found = shutil.which("g++")
    if not found or not shutil.which("nm"):
        pytest.skip("needs g++ and nm")
    return found


@pytest.mark.parametrize(
    ("source", "accessor", "flag"),
    [
        ("isa/scalar.cpp", "ktdesk::scalar_kernels()", None),
        ("isa/avx2.cpp", "ktdesk::avx2_kernels()", "-mavx2"),
        ("isa/avx512.cpp", "ktdesk::avx512_kernels()", "-mavx512f"),
        ("isa/avx512_vnni.cpp", "ktdesk::avx512_vnni_kernels()", "-mavx512vnni"),
    ],
)
def test_an_isa_file_shares_its_accessor_and_nothing_else(
    compiler: str, tmp_path: Path, source: str, accessor: str, flag: str | None
) -> None:
    """A function that two files share is linked once: the wide copy could then run on a narrow machine."""
    flags = flags_of(source)
    assert (flag in flags) == (flag is not None)
    target = tmp_path / "isa.o"
    command = [compiler, "-std=c++20", "-O3", "-fPIC", "-ffp-contract=off", "-w", "-c", str(CSRC / source)]
    result = subprocess.run([*command, *flags, "-o", str(target)], capture_output=True, text=True)
    if "unrecognized" in result.stderr or "not supported" in result.stderr:
        pytest.skip("this compiler does not build for x86-64")
    assert result.returncode == 0, result.stderr
    listing = subprocess.run(["nm", "-C", "--defined-only", str(target)], capture_output=True, text=True, check=True)
    shared = [line.split(maxsplit=2)[1:] for line in listing.stdout.splitlines() if line.split()[1] not in "trbdn"]
    assert shared == [["T", accessor]]


def test_only_isa_files_are_compiled_for_wide_instructions() -> None:
    text = (CSRC / "CMakeLists.txt").read_text()
    wide = [line for line in text.splitlines() if re.search(r"-m(avx|fma|f16c|amx)|march", line)]
    assert all("isa/" in line or line.strip().startswith('"-mavx2;') for line in wide)
    assert not any("march=native" in line for line in wide)
