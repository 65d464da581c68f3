"""The hand-off between an accelerator and the CPU: memory at fixed addresses (csrc/handoff.h draws it)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ktdesk_engine.kernels import _kernels
from ktdesk_engine.kernels._kernels import HandOffError as HandOffError
from ktdesk_engine.kernels.arrays import Blocks, Floats, Ids, new_floats
from ktdesk_engine.kernels.pools import WorkerPool
from ktdesk_engine.kernels.routing import Counts, Routes
from ktdesk_engine.kernels.weights import ExpertMlp

PAGE_BYTES = 4096


class HandOffAddresses(NamedTuple):
    """Of one layer, as a device's stream takes them."""

    ready: int
    """A 32-bit word: the accelerator writes 1 once x, ids and weights are there."""
    done: int
    """A 32-bit word: the accelerator waits for 1, then writes 0, and reads out."""


class HandOff:
    """Flags for each layer with experts, and two areas for what is handed over, which layers take in turn."""

    def __init__(self, num_layers: int, max_tokens: int, hidden: int, num_used: int) -> None:
        self.num_layers = num_layers
        self.max_tokens = max_tokens
        self._sizes = hidden, num_used
        num_bytes = _kernels.hand_off_bytes(num_layers, max_tokens, hidden, num_used)
        memory = np.zeros(num_bytes + PAGE_BYTES, np.uint8)
        start = -memory.ctypes.data % PAGE_BYTES
        self.memory: Blocks = memory[start : start + num_bytes]
        """At a page, for a device to pin."""
        self.native = _kernels.HandOff(self.memory, num_layers, max_tokens, hidden, num_used)

    def addresses(self, layer: int) -> HandOffAddresses:
        base = self.memory.ctypes.data
        ready, done, *_ = self.native.offsets(layer)
        return HandOffAddresses(base + ready, base + done)

    def x(self, layer: int, num_tokens: int) -> Floats:
        """(T, H), written by the accelerator."""
        return self._floats(2, layer, num_tokens, self._sizes[0])

    def ids(self, layer: int, num_tokens: int) -> Ids:
        """(T, K), written by the accelerator."""
        return self._part(3, layer, num_tokens, self._sizes[1]).view(np.int32).reshape(num_tokens, -1)

    def weights(self, layer: int, num_tokens: int) -> Floats:
        """(T, K), written by the accelerator."""
        return self._floats(4, layer, num_tokens, self._sizes[1])

    def out(self, layer: int, num_tokens: int) -> Floats:
        """(T, H), read by the accelerator."""
        return self._floats(5, layer, num_tokens, self._sizes[0])

    def fail(self) -> None:
        """Lets both sides go, where one of them cannot go on: who waits gets a HandOffError."""
        self.native.fail()

    def reset(self) -> None:
        """All flags down. Nobody may be waiting."""
        self.native.reset()

    def _floats(self, part: int, layer: int, num_tokens: int, width: int) -> Floats:
        return self._part(part, layer, num_tokens, width).view(np.float32).reshape(num_tokens, -1)

    def _part(self, part: int, layer: int, num_tokens: int, width: int) -> Blocks:
        start = self.native.offsets(layer)[part]
        return self.memory[start : start + 4 * num_tokens * width]


class FlagFunctions(NamedTuple):
    """Addresses of functions void(void* flag), for streams that can only call the host."""

    give: int
    """Sets the flag."""
    take: int
    """Waits for it and sets it back."""


def flag_functions() -> FlagFunctions:
    return FlagFunctions(*_kernels.flag_functions())


def hand_over(pool: WorkerPool, hand_off: HandOff, layer: int, x: Floats, routes: Routes) -> None:
    """The accelerator's side, where its operations run on a host thread."""
    _kernels.hand_over(pool, hand_off.native, layer, x, *routes)


def take_back(pool: WorkerPool, hand_off: HandOff, layer: int, x: Floats) -> Floats:
    """The same: waits for what the CPU computed of x (T, H) -> (T, H)."""
    out = new_floats(pool, *x.shape)
    _kernels.take_back(pool, hand_off.native, layer, out)
    return out


def signal(pool: WorkerPool, hand_off: HandOff, layer: int) -> None:
    """An event: `ready` alone."""
    _kernels.signal(pool, hand_off.native, layer)


def wait(pool: WorkerPool, hand_off: HandOff, layer: int) -> None:
    """Until another stream's `signal`, which is taken."""
    _kernels.wait(pool, hand_off.native, layer)


class CpuPart(NamedTuple):
    """What the CPU computes of one layer with experts, and what it keeps of it."""

    mlp: ExpertMlp
    slot_of_expert: Ids
    """(E,): below 0 for those that the CPU computes. Read in each step."""
    counts: Counts
    """(E,): grows by one for each token of an expert."""
    num_deferred: Ids | None
    """(1,): so many of a token's experts on the CPU come with the next layer's output. Read in each step."""
    pending: Floats
    """(T, H): those experts' output. One array for all layers."""
    has_pending: Ids
    """(1,), as pending."""


def cpu_share(pool: WorkerPool, hand_off: HandOff, layer: int, num_tokens: int, part: CpuPart) -> None:
    """The CPU's side: waits for the layer's input, computes the experts that are not on the accelerator.

    HandOffError where the accelerator failed or does not come.
    """
    mlp = part.mlp
    _kernels.cpu_share(
        pool,
        hand_off.native,
        layer,
        num_tokens,
        (mlp.gate.as_tuple, mlp.up.as_tuple, mlp.down.as_tuple),
        (int(mlp.activation), mlp.limit),
        mlp.weighs_inputs,
        *part[1:],
    )
