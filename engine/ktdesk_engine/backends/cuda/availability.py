"""Why there is no GPU to compute on, in one line: what is missing, and how to get it. Needs neither to be imported."""

from __future__ import annotations

import os
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec

from ktdesk_engine.backends.cuda import driver
from ktdesk_engine.backends.cuda.visible import VISIBLE, hides_all

MIN_CAPABILITY = (8, 0)
"""Ampere: the first whose tensor cores multiply bfloat16."""
NO_DEVICE = 100
"""CUDA_ERROR_NO_DEVICE"""
INSTALL = "pip install 'ktdesk[gpu]'"


@dataclass(frozen=True)
class Installed:
    """What a machine has, as far as it was looked: what lacks something before needs not be asked."""

    driver_cuda: int | None
    """The newest CUDA that the driver knows, 1000 x major + 10 x minor; None: there is no driver."""
    init_error: int = 0
    """What the driver's start gave; 0: it went well."""
    visible: str | None = None
    """CUDA_VISIBLE_DEVICES"""
    missing: str | None = None
    """Of the packages that are needed, the first that is not there."""
    import_problem: str | None = None
    """Why one that is there cannot be imported."""
    torch_version: str = ""
    torch_cuda: str | None = None
    """The CUDA that torch was built for; None: none."""
    card: str = ""
    """The first one's name."""
    capability: tuple[int, int] | None = None
    """Its compute capability; None: torch finds no card."""


def look() -> Installed:
    """What is here."""
    visible, cuda = os.environ.get(VISIBLE), driver.cuda_version()
    if cuda is None:
        return Installed(None, visible=visible)
    if error := driver.start():
        return Installed(cuda, error, visible)
    missing = next((name for name in ("torch", "triton") if find_spec(name) is None), None)
    if missing is not None:
        return Installed(cuda, 0, visible, missing)
    return _with_torch(cuda, visible)


def _with_torch(cuda: int, visible: str | None) -> Installed:
    try:
        import torch

        import_module("triton")
    except (ImportError, OSError) as error:
        return Installed(cuda, 0, visible, import_problem=f"{type(error).__name__}: {' '.join(str(error).split())}")
    found = Installed(cuda, 0, visible, torch_version=torch.__version__, torch_cuda=torch.version.cuda)
    if problem(found, looks_at_card=False) is not None or not torch.cuda.is_available():
        return found
    return Installed(
        cuda,
        visible=visible,
        torch_version=torch.__version__,
        torch_cuda=torch.version.cuda,
        card=torch.cuda.get_device_name(),
        capability=torch.cuda.get_device_capability(),
    )


def problem(found: Installed, *, looks_at_card: bool = True) -> str | None:
    """The first thing that keeps the GPU from being used; None: nothing."""
    return (
        _of_driver(found) or _of_packages(found) or _of_versions(found) or (_of_card(found) if looks_at_card else None)
    )


def _of_driver(found: Installed) -> str | None:
    if found.driver_cuda is None:
        return "no NVIDIA driver is here (libcuda.so.1): install the one of your card, until `nvidia-smi` lists it"
    if found.init_error == NO_DEVICE and found.visible is not None:
        return _hidden(found.visible)
    if found.init_error == NO_DEVICE:
        return "the NVIDIA driver finds no card: `nvidia-smi -L` has to list one (in a container, start it with --gpus)"
    if found.init_error:
        return (
            f"the NVIDIA driver does not start (CUDA error {found.init_error}): after an update restart the machine; "
            "`nvidia-smi` says more"
        )
    return None


def _hidden(visible: str) -> str:
    if hides_all(visible):
        return (
            f"CUDA_VISIBLE_DEVICES is {visible!r} and hides every card: unset it, or name one; `nvidia-smi -L` lists "
            "the numbers and UUIDs"
        )
    return (
        f"CUDA_VISIBLE_DEVICES is {visible!r}, and no card is called so: `nvidia-smi -L` lists the numbers and UUIDs; "
        "name one of them, or unset it"
    )


def _of_packages(found: Installed) -> str | None:
    if found.missing is not None:
        return f"{found.missing} is missing: {INSTALL}"
    if found.import_problem is not None:
        return f"torch or triton cannot be imported ({found.import_problem}): install them anew, {INSTALL}"
    return None


def _of_versions(found: Installed) -> str | None:
    if found.torch_cuda is None:
        return (
            f"torch {found.torch_version} is built without CUDA: `pip uninstall torch`, then {INSTALL} from an index "
            "whose torch has CUDA"
        )
    assert found.driver_cuda is not None
    major, minor = divmod(found.driver_cuda // 10, 100)
    if major < int(found.torch_cuda.partition(".")[0]):
        return (
            f"the NVIDIA driver is too old: it knows CUDA {major}.{minor}, and torch {found.torch_version} is built "
            f"for {found.torch_cuda}: update the driver, or install a torch for CUDA {major}"
        )
    return None


def _of_card(found: Installed) -> str | None:
    if found.capability is None and found.visible is not None:
        return _hidden(found.visible)
    if found.capability is None:
        return f"torch {found.torch_version} finds no card that it can use: `nvidia-smi` says what the driver sees"
    if found.capability < MIN_CAPABILITY:
        wanted, has = (".".join(map(str, capability)) for capability in (MIN_CAPABILITY, found.capability))
        return f"{found.card} is too old: it has compute capability {has}, and kernels need {wanted} (Ampere) or newer"
    return None
