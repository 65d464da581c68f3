"""Copies beside the computation: a stream of its own, and events that keep both in order."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


class SideStream:
    """For areas of memory that are filled in one stream and read in the other. On the CPU all is done in order."""

    def __init__(self, device: torch.device, num_areas: int) -> None:
        self._is_cuda = device.type == "cuda"
        if self._is_cuda:
            self._stream = torch.cuda.Stream(device)
            self._filled = [torch.cuda.Event() for _ in range(num_areas)]
            self._read = [torch.cuda.Event() for _ in range(num_areas)]

    @contextmanager
    def filling(self, area: int) -> Iterator[None]:
        """Submits to the side, behind the last reading of the area."""
        if not self._is_cuda:
            yield
            return
        self._stream.wait_event(self._read[area])
        with torch.cuda.stream(self._stream):
            yield
        self._filled[area].record(self._stream)

    @contextmanager
    def reading(self, area: int) -> Iterator[None]:
        """Submits to the computation, behind the last filling of the area."""
        if not self._is_cuda:
            yield
            return
        stream = torch.cuda.current_stream()
        stream.wait_event(self._filled[area])
        yield
        self._read[area].record(stream)
