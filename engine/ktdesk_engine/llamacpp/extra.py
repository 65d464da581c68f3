"""Whether llama.cpp is there: the optional extra `llamacpp`. Does not load it."""

from __future__ import annotations

import sys
from importlib.util import find_spec

REQUIREMENT = "llama-cpp-python>=0.3.36"
"""What the extra installs."""


def is_installed() -> bool:
    return find_spec("llama_cpp") is not None


def install_command() -> str:
    """For this Python."""
    return f"{sys.executable} -m pip install '{REQUIREMENT}'"
