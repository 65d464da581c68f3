"""No instruction that a processor may lack outside the file of its instruction set.

Looks at the object files of the build folder: the wheel's extension has no symbols.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sysconfig
from pathlib import Path

import pytest

BUILD = Path(__file__).parents[3] / "build"
WIDE_REGISTER = re.compile(r"%[yz]mm\d|%tmm\d|%k[1-7]\b")


def objects(pattern: str) -> list[Path]:
    tag = "cp" + (sysconfig.get_config_var("py_version_nodot") or "")
    folders = [folder for folder in BUILD.glob(f"{tag}-*/CMakeFiles/_kernels.dir") if folder.is_dir()]
    if not folders:
        pytest.skip(f"there is no build folder of this Python under {BUILD}")
    if shutil.which("objdump") is None or shutil.which("nm") is None:
        pytest.skip("the machine has no objdump and nm")
    return sorted(folders[0].glob(pattern))


def output(*command: str | Path) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def disassembly(file: Path) -> str:
    return output("objdump", "-d", "--no-show-raw-insn", file)


def test_files_for_every_processor_have_no_wide_register() -> None:
    files = objects("*.o") + [file for file in objects("isa/*.o") if file.name.startswith("scalar")]
    assert len(files) > 10
    for file in files:
        found = WIDE_REGISTER.search(disassembly(file))
        assert found is None, f"{file.name} has {found and found[0]}"


def test_files_of_wide_sets_share_no_symbol_that_the_linker_could_take_for_another_file() -> None:
    """A weak symbol of one file is used by all: wide code would run where it must not."""
    files = [file for file in objects("isa/*.o") if not file.name.startswith("scalar")]
    assert files
    for file in files:
        symbols = [line.split()[-2:] for line in output("nm", "--defined-only", file).splitlines()]
        weak = [name for kind, name in symbols if kind in "WVuwv" and not name.startswith("DW.ref.")]
        shown = [name for kind, name in symbols if kind == "T"]
        assert not weak, f"{file.name} has weak symbols: {weak[:3]}"
        assert len(shown) == 1, f"{file.name} shows more than its table: {shown}"


@pytest.mark.parametrize(("name", "register"), [("avx2", "%ymm"), ("avx512", "%zmm"), ("amx", "%tmm")])
def test_the_search_finds_what_it_looks_for(name: str, register: str) -> None:
    (file,) = [file for file in objects("isa/*.o") if file.name.startswith(f"{name}.")]
    assert register in disassembly(file)
