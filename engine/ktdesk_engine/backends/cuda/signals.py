"""How a device's stream and the CPU tell each other that something is there: a flag in host memory.

A stream writes and awaits the flag itself where the driver lets it; else it calls functions of the host; and where
torch computes on the CPU, the caller does it. `signals_for` finds out which.
"""

from __future__ import annotations

import time
from typing import Protocol

import numpy as np
import torch

from ktdesk_engine.backends.cuda import driver
from ktdesk_engine.kernels.handoff import HandOff, HandOffError, flag_functions

NAP_SECONDS = 20e-6


class Signals(Protocol):
    """Submitted to the stream that computes."""

    @property
    def name(self) -> str: ...

    def give(self, hand_off: HandOff, layer: int) -> None:
        """ready = 1, once what was submitted before is done."""

    def take(self, hand_off: HandOff, layer: int) -> None:
        """What follows waits for done = 1, which becomes 0."""


def signals_for(device: torch.device) -> Signals:
    if device.type != "cuda":
        return CallerSignals()
    if driver.has_stream_flags(torch.cuda.current_device() if device.index is None else device.index):
        return StreamSignals(device)
    return HostFunctionSignals(device)


class StreamSignals:
    """The stream's own memory operations."""

    name = "stream memory operations"

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def give(self, hand_off: HandOff, layer: int) -> None:
        driver.write_flag(_stream(self._device), hand_off.addresses(layer).ready, 1)

    def take(self, hand_off: HandOff, layer: int) -> None:
        done = hand_off.addresses(layer).done
        driver.await_flag(_stream(self._device), done, 1)
        driver.write_flag(_stream(self._device), done, 0)


class HostFunctionSignals:
    """Functions that the driver calls on the host, in the stream's order."""

    name = "host functions"

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._functions = flag_functions()

    def give(self, hand_off: HandOff, layer: int) -> None:
        driver.call_host(_stream(self._device), self._functions.give, hand_off.addresses(layer).ready)

    def take(self, hand_off: HandOff, layer: int) -> None:
        driver.call_host(_stream(self._device), self._functions.take, hand_off.addresses(layer).done)


class CallerSignals:
    """At once: operations on the CPU are done when they return."""

    name = "the caller"

    def give(self, hand_off: HandOff, layer: int) -> None:
        _word(hand_off, hand_off.addresses(layer).ready)[0] = 1

    def take(self, hand_off: HandOff, layer: int) -> None:
        done = _word(hand_off, hand_off.addresses(layer).done)
        end = time.monotonic() + hand_off.native.timeout_ns / 1e9
        while not done[0]:
            if time.monotonic() > end:
                raise HandOffError("the CPU did not answer in time")
            time.sleep(NAP_SECONDS)
        done[0] = 0


def _stream(device: torch.device) -> int:
    return int(torch.cuda.current_stream(device).cuda_stream)


def _word(hand_off: HandOff, address: int) -> np.ndarray:
    start = address - hand_off.memory.ctypes.data
    return hand_off.memory[start : start + 4].view(np.uint32)
