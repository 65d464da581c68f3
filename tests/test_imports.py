"""What may import what, seen from outside: in a fresh process."""

from __future__ import annotations

import subprocess
import sys

import pytest


def modules_after(statement: str) -> set[str]:
    """Top-level modules that are loaded after a statement."""
    code = f"{statement}\nimport sys\nprint(*{{name.partition('.')[0] for name in sys.modules}})"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(result.stdout.split())


@pytest.mark.parametrize("foreign", ["torch", "transformers", "llama_cpp", "textual", "fastapi", "typer", "llguidance"])
def test_the_engine_needs_none_of_these(foreign: str) -> None:
    assert foreign not in modules_after("import ktdesk_engine.engine")


def test_the_engine_writes_no_gguf_and_reads_it_alone() -> None:
    assert "gguf" not in modules_after("import ktdesk_engine.engine")


def test_help_loads_nothing_heavy() -> None:
    loaded = modules_after(
        "from typer.testing import CliRunner\nfrom ktdesk.cli import app\n"
        "assert CliRunner().invoke(app, ['--help']).exit_code == 0"
    )
    heavy = {
        "textual",
        "rich",
        "numpy",
        "tokenizers",
        "jinja2",
        "gguf",
        "psutil",
        "fastapi",
        "pydantic",
        "uvicorn",
        "llguidance",
        "huggingface_hub",
    }
    assert not loaded & {*heavy, "ktdesk_engine"}


def test_every_public_module_has_a_docstring_that_says_what_it_holds() -> None:
    code = (
        "import pkgutil, importlib, ktdesk, ktdesk_engine, ktdesk_wizard, ktdesk_profiles\n"
        "from importlib.util import find_spec\n"
        "for package in (ktdesk, ktdesk_engine, ktdesk_wizard, ktdesk_profiles):\n"
        "    for module in pkgutil.walk_packages(package.__path__, package.__name__ + '.'):\n"
        "        if module.name.endswith(('._kernels', '.__main__', 'chat.worker')): continue\n"
        "        if '.llamacpp.' in module.name and find_spec('llama_cpp') is None: continue\n"
        "        if '.backends.cuda.' in module.name and not (find_spec('torch') and find_spec('triton')): continue\n"
        "        assert importlib.import_module(module.name).__doc__, module.name\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
