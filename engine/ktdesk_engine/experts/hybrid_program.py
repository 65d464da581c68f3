"""A decode step of which an accelerator has one part and the CPU the other, each recorded, replayed side by side."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from ktdesk_engine.backends.backend import Backend, Recorder
from ktdesk_engine.kernels import Ids


class Sides(Protocol):
    """Accelerator and CPU, as a step finds and leaves them."""

    def prepare(self) -> None:
        """Takes away what a step that failed has left."""

    def settle(self) -> None:
        """Brings both to a stop, and makes them ready for the next step."""

    def stopped(self, error: Exception) -> Exception:
        """Brings both to a stop; what is to be raised instead."""


class HybridProgram:
    """The recorder of experts/hybrid.py. The device's part is launched, then the CPU's runs until both are done."""

    def __init__(self, device: Recorder, host: Recorder, accelerator: Backend, sides: Sides) -> None:
        self._device = device
        self._host = host
        self._accelerator = accelerator
        self._sides = sides

    @property
    def computes_while_recording(self) -> bool:
        return self._device.computes_while_recording

    def ids(self, *shape: int) -> Ids:
        return self._device.ids(*shape)

    @contextmanager
    def recording(self) -> Iterator[None]:
        with self._device.recording(), self._host.recording():
            yield
        if self.computes_while_recording:
            self._accelerator.synchronize()
        else:
            self._sides.settle()  # the CPU computed with what lay in the hand-off, and nobody took it back

    def replay(self) -> None:
        self._sides.prepare()
        self._device.replay()
        try:
            self._host.replay()
        except Exception as error:
            raise self._sides.stopped(error) from error
        self._accelerator.synchronize()

    @property
    def num_bytes(self) -> int:
        return self._device.num_bytes + self._host.num_bytes
