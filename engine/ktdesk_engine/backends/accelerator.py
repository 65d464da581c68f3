"""What the hybrid half needs of a device: the interface that backends/cuda.py and backends/host_thread.py implement.

A device computes what it is told in the order in which it is told, beside the CPU: a call submits an operation
and returns. Its results lie in the device's memory; a block that Python lets go of may be given to an operation
that is submitted later, as in a stream-ordered allocator. Operations that fail are found at `synchronize`.

One layer with experts, in a step (experts/hybrid.py):

    routes = router(x)                           device
    device.hand_over(hand_off, k, x, routes)     device: into pinned memory, then ready[k] = 1
    shared = shared_experts(x)                   device
    resident = slots.experts(k, x, routes)       device
        cpu_share(pool, hand_off, k, ...)        CPU: ready[k], its experts, done[k] = 1
    rest = device.take_back(hand_off, k, x)      device: waits for done[k], sets it to 0, copies in
    y = shared + resident + rest                 device

`Recorder.recording` of the device captures its side (a CUDA graph), the CPU's is a program of its own
(experts/hybrid_program.py replays both): `replay` of a device's recorder returns before the device is
done, and `synchronize` wait for it. Everything at fixed addresses: the hand-off's memory, the tables of
slots and the slots change in place.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple, Protocol

from ktdesk_engine.backends.backend import Backend
from ktdesk_engine.kernels import Blocks, ExpertMlp, Floats, Ids, Weight
from ktdesk_engine.kernels.handoff import HandOff
from ktdesk_engine.kernels.routing import Routes

RESERVED_BYTES = 256 << 20
"""Of a GPU: recorded steps, a large matrix unpacked to bfloat16, what torch rounds up."""

CopyWay = Literal["up", "down", "within"]
"""To the device from pinned memory of the host, back there, or from one place of the device to another."""


class HostExperts(NamedTuple):
    """The routed experts of one layer, on the host."""

    in_file: ExpertMlp
    """As the file has them: what a device lays out anew."""
    in_memory: ExpertMlp
    """As the CPU computes with them."""


class ExpertSlots(Protocol):
    """Room for experts on the device: slots of one size, each for any expert of any layer."""

    @property
    def num_slots(self) -> int: ...

    @property
    def slot_bytes(self) -> int:
        """Of the largest expert of all layers."""

    @property
    def side_bytes(self) -> int:
        """That a slot needs besides, in memory of its own."""

    def put(self, slot: int, layer: int, expert: int) -> None:
        """Submits the copy of an expert's weights into a slot."""

    def set_table(self, slot_of_expert: Ids) -> None:
        """(L, E): the slot of each expert, -1 for those on the CPU. Submitted; changes the device's table in place."""

    def close(self) -> None:
        """Gives the memory back. Nothing that was submitted computes with it any more."""

    def experts(self, layer: int, x: Floats, routes: Routes) -> Floats:
        """The weighted sum of those that have slots, (T, H); the others add nothing."""


class ExpertStage(Protocol):
    """Two areas for all experts of a layer each, for prompts so long that the weights' way costs less than the CPU."""

    def load(self, layer: int) -> None:
        """Begins to copy a layer's experts into the area layer % 2, once what was there is no longer computed with.

        Beside the device's operations, not among them.
        """

    def fail(self) -> None:
        """Lets go who waits for a copy, and copies that wait for who computes: the step is not finished."""

    def close(self) -> None:
        """As that of slots."""

    def experts(self, layer: int, x: Floats, routes: Routes) -> Floats:
        """The weighted sum of all the token's experts, (T, H), once they are loaded."""


class Accelerator(Backend, Protocol):
    """A device with the operations of a backend, and what the hybrid half needs besides."""

    @property
    def name(self) -> str: ...

    @property
    def free_bytes(self) -> int:
        """Of its memory."""

    @property
    def reserved_bytes(self) -> int:
        """That stay free beside what operations are known to need: for libraries, for what they round up."""

    @property
    def signals_by(self) -> str:
        """How it gives flags to the CPU, and waits for the CPU's."""

    def copy_seconds(self, num_bytes: int, way: CopyWay) -> float:
        """Takes the time of one copy, with nothing else submitted."""

    def tune(self) -> None:
        """Called once the CPU's pool has its tuning: a device that computes with the CPU's kernels takes it over."""

    def weight(self, weight: Weight) -> Weight:
        """A matrix of the file in the device's own layout, exactly the file's values: what operations take."""

    def pin(self, hand_off: HandOff) -> None:
        """Its memory is the device's to read and write from now on. A device that failed calls its `fail`."""

    def hand_over(self, hand_off: HandOff, layer: int, x: Floats, routes: Routes) -> None:
        """x (T, H) and routes into the hand-off's memory, then `ready`."""

    def take_back(self, hand_off: HandOff, layer: int, x: Floats) -> Floats:
        """Waits for `done`; what the CPU's experts gave for x, (T, H)."""

    def expert_slots(self, layers: Sequence[HostExperts], num_slots: int, memory: Blocks | None = None) -> ExpertSlots:
        """memory (num_slots * slot_bytes,): of `cache_memory`, where they lie; None: in memory of their own.
        AcceleratorMemoryError where they do not fit."""

    def expert_stage(self, layers: Sequence[HostExperts]) -> ExpertStage:
        """AcceleratorMemoryError where both areas do not fit."""

    def give_back_memory(self, memory: Blocks) -> None:
        """What `cache_memory` gave, which nobody else has any more."""

    def close(self) -> None:
        """Ends what runs on it and gives its memory back. May be called again; what failed before is told no more."""
