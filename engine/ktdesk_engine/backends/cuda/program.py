"""A decode step on a GPU as a CUDA graph: recorded once, replayed over the same memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ktdesk_engine.backends.cuda.failures import engine_errors
from ktdesk_engine.errors import AcceleratorError
from ktdesk_engine.kernels import Ids

if TYPE_CHECKING:
    from ktdesk_engine.backends.cuda.backend import TorchBackend


class TorchProgram:
    """Host arrays of its own, their copies on the device, and the graph.

    Kernels that run for the first time are loaded while the graph is captured: the capture is relaxed, which lets
    that happen.
    """

    computes_while_recording = False

    def __init__(self, backend: TorchBackend) -> None:
        if backend.device.type != "cuda":
            raise AcceleratorError("steps are recorded on a GPU only: load the engine without programs")
        self._backend = backend
        self._graph = torch.cuda.CUDAGraph()
        self._host: list[tuple[Ids, torch.Tensor, torch.Tensor]] = []
        """An array, the pinned memory that it is, and its copy on the device."""
        self._num_bytes = 0

    @property
    def num_bytes(self) -> int:
        """What the graph's pool took."""
        return self._num_bytes

    def ids(self, *shape: int) -> Ids:
        """Zeros on the host, to be overwritten before each run."""
        pinned = torch.zeros(shape, dtype=torch.int32, pin_memory=True)
        array: Ids = pinned.numpy()
        self._host.append((array, pinned, torch.zeros(shape, dtype=torch.int32, device=self._backend.device)))
        return array

    def upload(self, ids: Ids) -> torch.Tensor | None:
        """Of an array of this program: its copy on the device, which each replay makes anew."""
        for array, pinned, copy in self._host:
            if array is ids:
                return copy.copy_(pinned, non_blocking=True)
        return None

    def download(self, values: torch.Tensor) -> np.ndarray[Any, Any]:
        """Host memory that has the values after each replay."""
        pinned = torch.empty(values.shape, dtype=values.dtype, pin_memory=True)
        pinned.copy_(values, non_blocking=True)
        array: np.ndarray[Any, Any] = pinned.numpy()
        return array

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Operations inside are taken up, and not computed."""
        before = torch.cuda.memory_allocated(self._backend.device)
        capture: Any = torch.cuda.graph(self._graph, capture_error_mode="relaxed")
        with engine_errors(), self._backend.records(self), capture:
            yield
        self._num_bytes = max(torch.cuda.memory_allocated(self._backend.device) - before, 0)

    def replay(self) -> None:
        """Begins; `synchronize` waits for it."""
        with engine_errors():
            self._graph.replay()
