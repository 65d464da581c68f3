"""A GPU as the hybrid half needs it: implements backends/accelerator.py with torch, Triton and the CUDA driver."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from typing import cast

import torch

from ktdesk_engine.backends.accelerator import RESERVED_BYTES, Accelerator, CopyWay, HostExperts
from ktdesk_engine.backends.cuda import driver
from ktdesk_engine.backends.cuda.backend import TorchBackend
from ktdesk_engine.backends.cuda.signals import CallerSignals, signals_for
from ktdesk_engine.backends.cuda.slots import DeviceSlots, DeviceStage
from ktdesk_engine.errors import AcceleratorError
from ktdesk_engine.kernels import Weight, WorkerPool
from ktdesk_engine.kernels.handoff import HandOff
from ktdesk_engine.kernels.routing import Routes
from ktdesk_engine.machine import available_memory_bytes


def open_gpu(pool: WorkerPool, memory_bytes: int | None = None) -> Accelerator:
    """The first GPU that CUDA_VISIBLE_DEVICES leaves. availability.py said that there is one, and that it will do.

    memory_bytes: that may be used; None: all that is free.
    """
    device = torch.device("cuda", torch.cuda.current_device())
    if memory_bytes is not None:
        share = min(memory_bytes / torch.cuda.get_device_properties(device).total_memory, 1.0)
        torch.cuda.set_per_process_memory_fraction(share, device)
    return as_accelerator(CudaAccelerator(device, pool, memory_bytes))


def as_accelerator(accelerator: CudaAccelerator) -> Accelerator:
    """Its arrays are tensors, which layers handle as they handle numpy's."""
    return cast(Accelerator, accelerator)


class CudaAccelerator(TorchBackend):
    """A device of torch."""

    def __init__(self, device: torch.device, pool: WorkerPool, memory_bytes: int | None = None) -> None:
        """memory_bytes: that may be used; None: all that is free."""
        super().__init__(device, pool)
        self.name = _name_of(device)
        self._memory_bytes = memory_bytes
        self.signals = signals_for(device)
        self._hand_offs: list[HandOff] = []

    @property
    def free_bytes(self) -> int:
        """Of its memory: what the driver has, and what torch holds unused; no more than may be used."""
        if self.device.type != "cuda":
            return available_memory_bytes()
        allocated = torch.cuda.memory_allocated(self.device)
        free = int(torch.cuda.mem_get_info(self.device)[0]) + torch.cuda.memory_reserved(self.device) - allocated
        return free if self._memory_bytes is None else min(free, self._memory_bytes - allocated)

    @property
    def reserved_bytes(self) -> int:
        return RESERVED_BYTES if self.device.type == "cuda" else 0

    @property
    def signals_by(self) -> str:
        return self.signals.name

    def copy_seconds(self, num_bytes: int, way: CopyWay) -> float:
        is_cuda = self.device.type == "cuda"
        host = torch.zeros(num_bytes, dtype=torch.uint8, pin_memory=is_cuda)
        device, other = (self.new_bytes(num_bytes, what="a copy to measure") for _ in range(2))
        from_, to = {"up": (host, device), "down": (device, host), "within": (device, other)}[way]
        for _ in range(2):  # the first warms up
            self.synchronize()
            started = time.perf_counter()
            to.copy_(from_, non_blocking=True)
            self.synchronize()
        return time.perf_counter() - started

    def tune(self) -> None:
        """Its kernels are its own."""

    def weight(self, weight: Weight) -> Weight:
        """Operations name it as the file has it."""
        self.prepare(weight)
        return weight

    def pin(self, hand_off: HandOff) -> None:
        """Its memory is the device's to read and write from now on."""
        self._hand_offs.append(hand_off)
        if self.device.type == "cuda":
            memory = hand_off.memory
            error = int(torch.cuda.cudart().cudaHostRegister(memory.ctypes.data, memory.nbytes, 0))
            if error != 0:
                raise AcceleratorError(
                    f"{memory.nbytes:,} bytes of host memory, by which experts on the CPU get their input, cannot be "
                    f"pinned: CUDA error {error}; free some memory, or run on the CPU alone"
                )

    def hand_over(self, hand_off: HandOff, layer: int, x: torch.Tensor, routes: Routes) -> None:
        """x (T, H) and routes into the hand-off's memory, then `ready`."""
        num_tokens = len(x)
        parts = (hand_off.x(layer, num_tokens), hand_off.ids(layer, num_tokens), hand_off.weights(layer, num_tokens))
        for to, values in zip(parts, (x, *routes), strict=True):
            torch.from_numpy(to).copy_(cast(torch.Tensor, values), non_blocking=True)
        self.signals.give(hand_off, layer)
        if self.is_recording:
            # A captured operation does not run, but the CPU records by computing: it may begin, with whatever is there.
            CallerSignals().give(hand_off, layer)

    def take_back(self, hand_off: HandOff, layer: int, x: torch.Tensor) -> torch.Tensor:
        """Waits for `done`; what the CPU's experts gave for x, (T, H)."""
        self.signals.take(hand_off, layer)
        out = torch.empty_like(x)
        return out.copy_(torch.from_numpy(hand_off.out(layer, len(x))), non_blocking=True)

    def expert_slots(
        self, layers: Sequence[HostExperts], num_slots: int, memory: torch.Tensor | None = None
    ) -> DeviceSlots:
        return DeviceSlots(self, layers, num_slots, memory)

    def expert_stage(self, layers: Sequence[HostExperts]) -> DeviceStage:
        return DeviceStage(self, layers)

    def synchronize(self) -> None:
        """AcceleratorError where an operation failed: then the CPU waits for nothing any more."""
        try:
            super().synchronize()
        except AcceleratorError:
            for hand_off in self._hand_offs:
                hand_off.fail()
            raise

    def give_back_memory(self, memory: torch.Tensor) -> None:
        """torch has it again, once nothing names it any more."""

    def close(self) -> None:
        """Ends what runs on it and gives its memory back. May be called again; what failed before is told no more."""
        with suppress(AcceleratorError):
            self.synchronize()
        if self.device.type == "cuda":
            for hand_off in self._hand_offs:
                torch.cuda.cudart().cudaHostUnregister(hand_off.memory.ctypes.data)
        self._hand_offs.clear()
        self.forget()


def _name_of(device: torch.device) -> str:
    """With its place on the bus: there may be several of a kind."""
    if device.type != "cuda":
        return "torch on the CPU"
    return f"{torch.cuda.get_device_name(device)} at {driver.bus_id(device.index)}"
