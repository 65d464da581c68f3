"""NVIDIA's management library, of which every answer may be missing.

It is the module `pynvml` of the package nvidia-ml-py, or what a test has in its place.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any


class NoNvmlError(Exception):
    """There is no library to ask; the message says why."""


class Nvml:
    """Open until `close`."""

    def __init__(self, module: Any) -> None:
        """NoNvmlError where the driver's library is missing, or refuses."""
        self._module = module
        try:
            module.nvmlInit()
        except module.NVMLError as error:
            raise NoNvmlError(f"NVML: {error}") from None

    def ask(self, name: str, *arguments: Any) -> Any | None:
        """What the function nvmlNAME answers; None where this card, driver or system does not support it."""
        function = getattr(self._module, f"nvml{name}", None)
        if function is None:
            return None
        try:
            answer = function(*arguments)
        except self._module.NVMLError:
            return None
        return answer.decode(errors="replace") if isinstance(answer, bytes) else answer

    def constant(self, name: str) -> Any:
        return getattr(self._module, name, None)

    def close(self) -> None:
        self.ask("Shutdown")


def load_nvml() -> Nvml:
    try:
        module = import_module("pynvml")
    except ImportError:
        raise NoNvmlError("the package nvidia-ml-py is not installed") from None
    return Nvml(module)
