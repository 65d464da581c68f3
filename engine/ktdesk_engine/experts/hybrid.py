"""Layers with experts on two devices: resident experts on the accelerator, the others on the CPU, at the same time.

`HybridExperts` takes the place of what computes the routed experts in all such layers of a model (experts/moe.py).
backends/accelerator.py has the order of things in one layer.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from ktdesk_engine.backends.accelerator import Accelerator, HostExperts
from ktdesk_engine.backends.cpu import CpuBackend
from ktdesk_engine.errors import AcceleratorError, AcceleratorMemoryError
from ktdesk_engine.experts.hybrid_program import HybridProgram
from ktdesk_engine.experts.moe import ExpertLayer
from ktdesk_engine.experts.residency import Residency
from ktdesk_engine.experts.streaming import StreamedExperts
from ktdesk_engine.experts.use import ExpertUse
from ktdesk_engine.kernels import Floats, Ids
from ktdesk_engine.kernels.handoff import CpuPart, HandOff, HandOffError, cpu_share
from ktdesk_engine.kernels.routing import Routes

log = logging.getLogger("ktdesk.engine")

NO_PASSING = "long prompts do not pass through the accelerator, the CPU computes their experts"


class HybridExperts:
    """The routed experts of a model whose other parts lie on the accelerator."""

    def __init__(
        self,
        accelerator: Accelerator,
        cpu: CpuBackend,
        layers: Sequence[ExpertLayer],
        in_file: Sequence[HostExperts],
        use: ExpertUse,
        num_deferred: Ids,
        max_tokens: int,
        streamed: StreamedExperts | None = None,
    ) -> None:
        """num_deferred (1,): of a token's experts on the CPU, read in each step. max_tokens: of a batch. streamed: for
        long prompts."""
        first = layers[0]
        self._accelerator = accelerator
        self._cpu = cpu
        self._hand_off = HandOff(len(layers), max_tokens, first.hidden, first.rule.num_used)
        accelerator.pin(self._hand_off)
        self.residency = Residency(accelerator, in_file)
        pending, has_pending = np.zeros((max_tokens, first.hidden), np.float32), np.zeros(1, np.int32)
        self._parts = [
            CpuPart(experts.in_memory, slots, counts, num_deferred, pending, has_pending)
            for experts, slots, counts in zip(in_file, self.residency.slot_of_expert, use.counts, strict=True)
        ]
        self.streamed = streamed
        """May be taken away between steps."""
        self._batch: _Batch = _Batch(0.0, False, False)
        self._nowhere = np.zeros(first.rule.num_experts, np.int32)
        """A table by which the CPU has nothing to compute."""
        self._last = len(layers) - 1
        self._is_open = False
        """A step began that has not come to its last layer."""
        for index, layer in enumerate(layers):
            layer.routed = partial(self._experts, index)

    def program(self) -> HybridProgram:
        """For a decode step. Void once slots have other addresses."""
        return HybridProgram(self._accelerator.program(), self._cpu.program(), self._accelerator, self)

    def _experts(self, index: int, x: Floats, routes: Routes, is_decode: bool) -> Callable[[], Floats]:
        accelerator, slots = self._accelerator, self.residency.slots
        if index == 0:
            self._begin(len(x), is_decode)
        accelerator.hand_over(self._hand_off, index, x, routes)
        resident: Floats | None = None
        if self._batch.is_streamed and self.streamed is not None:
            resident = self.streamed.experts(index, x, routes)
        elif slots is not None:
            resident = slots.experts(index, x, routes)

        def finish() -> Floats:
            self._compute_on_cpu(index, len(x), is_decode)
            rest = accelerator.take_back(self._hand_off, index, x)
            if index == self._last:
                self._end(len(x))
            return rest if resident is None else accelerator.add(resident, rest)

        return finish

    def settle(self) -> None:
        """Brings both sides to a stop, where a step was left, and makes them ready for the next."""
        try:
            self._stop()
        except AcceleratorError as error:
            log.debug("what was left of the step before: %s", error)

    def _stop(self) -> None:
        """Whoever waits is let go. Raises what the accelerator failed with."""
        self._hand_off.fail()
        if self.streamed is not None:
            self.streamed.fail()
        try:
            self._accelerator.synchronize()
        finally:
            self._hand_off.reset()
            self._is_open = False
            self._reset_streamed()

    def _reset_streamed(self) -> None:
        """Its areas are taken anew where a copy was left; where others took the memory meanwhile, there are none."""
        if self.streamed is None:
            return
        try:
            self.streamed.reset()
        except (AcceleratorMemoryError, MemoryError) as error:
            log.warning("%s; %s", error, NO_PASSING)
            self.streamed = None

    def prepare(self) -> None:
        """Takes down the flags that a failure left. What failed between two steps, and nobody heard of, is raised."""
        if self._is_open:
            self.settle()
        elif self._hand_off.native.has_failed:
            self._hand_off.reset()
            self._accelerator.synchronize()

    def _begin(self, num_tokens: int, is_decode: bool) -> None:
        self.prepare()
        self._is_open = True
        streams = self.streamed is not None and not is_decode and self.streamed.break_even.streams(num_tokens)
        self._batch = _Batch(time.perf_counter(), is_decode, streams)

    def _end(self, num_tokens: int) -> None:
        """The CPU follows the accelerator from layer to layer, so its clock tells for both."""
        self._is_open = False
        if self.streamed is not None and not self._batch.is_decode:
            seconds = time.perf_counter() - self._batch.started
            self.streamed.break_even.took(self._batch.is_streamed, num_tokens, seconds)

    def _compute_on_cpu(self, index: int, num_tokens: int, is_decode: bool) -> None:
        part = self._parts[index]
        if not is_decode:
            part = part._replace(num_deferred=None)
        if self._batch.is_streamed:
            part = part._replace(slot_of_expert=self._nowhere)
        try:
            cpu_share(self._cpu.pool, self._hand_off, index, num_tokens, part)
        except (HandOffError, MemoryError) as error:
            raise self.stopped(error) from error

    def stopped(self, error: Exception) -> Exception:
        """Brings both sides to a stop; the error that says why the step ended."""
        try:
            self._stop()
        except AcceleratorError as cause:
            if isinstance(error, HandOffError):
                return cause
        return AcceleratorError(str(error)) if isinstance(error, HandOffError) else error


class _Batch(NamedTuple):
    """The one that is being computed."""

    started: float
    is_decode: bool
    is_streamed: bool
