"""Where the kernels of a GPU run: on it if there is one, else in Triton's interpreter on the CPU."""

from __future__ import annotations

import os

import pytest

torch = pytest.importorskip("torch", reason="the extra gpu is not installed")
if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # read when triton is imported
pytest.importorskip("triton", reason="the extra gpu is not installed")


@pytest.fixture(scope="session")
def device() -> torch.device:
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")
