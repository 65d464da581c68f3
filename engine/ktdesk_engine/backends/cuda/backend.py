"""The operations of a layer in torch and Triton, on a GPU; in tests on the CPU, by Triton's interpreter.

The same as `backends.cpu.CpuBackend` has, on torch tensors. Weights and constants are named by the host arrays that
layers hold; what lies on the device for each is found by the array's address. A matrix is re-laid when it is first
asked for, or before by `prepare`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, NamedTuple

import numpy as np
import torch
import triton

from ktdesk_engine.backends.cuda import attention as paged
from ktdesk_engine.backends.cuda.device_weights import DeviceMatrices, Plain, to_device
from ktdesk_engine.backends.cuda.experts import DeviceMlp, DeviceWeight
from ktdesk_engine.backends.cuda.failures import engine_errors
from ktdesk_engine.backends.cuda.layer_kernels import rms_norm_kernel, rope_kernel, routing_kernel
from ktdesk_engine.backends.cuda.products import MAX_TOKENS, bfloat16_product, multiply, rows_of, unpacked
from ktdesk_engine.backends.cuda.program import TorchProgram
from ktdesk_engine.errors import AcceleratorMemoryError
from ktdesk_engine.kernels import (
    AttentionRule,
    Blocks,
    CachedRows,
    Doubles,
    ExpertMlp,
    ExpertWeight,
    Floats,
    Ids,
    PagedContext,
    RopePairing,
    Weight,
    WorkerPool,
)
from ktdesk_engine.kernels.routing import SMALLEST_WEIGHT_SUM, Counts, Gating, Routes, RoutingRule

HostArray = np.ndarray[Any, Any]
Place = tuple[Any, ...]


class DeviceTurns(NamedTuple):
    """Cosines and sines of a batch's positions, each (T, pairs)."""

    cosines: torch.Tensor
    sines: torch.Tensor


class _Counter(NamedTuple):
    """How often experts were used since the host last knew."""

    host: Counts
    device: torch.Tensor


class TorchBackend:
    """Computes on one device, in the order of the calls."""

    def __init__(self, device: torch.device, pool: WorkerPool) -> None:
        """pool: the CPU's threads."""
        self.device = device
        self.pool = pool
        self._matrices: dict[Place, tuple[HostArray, DeviceMatrices]] = {}
        self._constants: dict[Place, tuple[HostArray, torch.Tensor]] = {}
        self._counters: dict[Place, _Counter] = {}
        self._program: TorchProgram | None = None
        """The one that records."""
        self._waited_seconds = 0.0

    @property
    def weight_bytes(self) -> int:
        """On the device, with their scales."""
        return sum(matrices.num_bytes for _, matrices in self._matrices.values())

    @property
    def busy_seconds(self) -> float:
        """The CPU's, and what was waited for the device."""
        return self.pool.busy_seconds + self._waited_seconds

    def prepare(self, weight: Weight) -> None:
        """Brings a weight to the device now."""
        with self.memory_for(f"a weight of {weight.num_rows} x {weight.row_length}"):
            self._on_device(weight)

    @property
    def is_recording(self) -> bool:
        return self._program is not None

    def program(self) -> TorchProgram:
        return TorchProgram(self)

    @contextmanager
    def records(self, program: TorchProgram) -> Iterator[None]:
        """While it lasts, uploads of the program's own arrays are what these have in each replay."""
        self._program = program
        try:
            yield
        finally:
            self._program = None

    def upload(self, ids: Ids) -> torch.Tensor:
        recorded = self._program.upload(ids) if self._program is not None else None
        return torch.from_numpy(ids).to(self.device) if recorded is None else recorded

    def download(self, values: torch.Tensor) -> HostArray:
        """Waits for it, but in a recording."""
        if self._program is not None:
            return self._program.download(values)
        array: HostArray = values.cpu().numpy()
        return array

    def synchronize(self) -> None:
        """Raises what an operation failed with; the counts of experts are on the host then."""
        started = time.perf_counter()
        with engine_errors():
            if self.device.type == "cuda":
                torch.cuda.synchronize(self.device)
            for counter in self._counters.values():
                np.add(counter.host, counter.device.cpu().numpy(), out=counter.host)
                counter.device.zero_()
        self._waited_seconds += time.perf_counter() - started

    def failures(self) -> AbstractContextManager[None]:
        """Out of memory, lost, or failed."""
        return engine_errors()

    def cache_memory(self, *shape: int) -> torch.Tensor:
        return self.new_bytes(*shape, what="keys and values")

    def read_memory(self, memory: torch.Tensor) -> Blocks:
        """A copy on the host, (bytes,)."""
        content: Blocks = memory.cpu().numpy().reshape(-1).copy()
        return content

    def write_memory(self, memory: torch.Tensor, content: Blocks) -> None:
        """content: of the host, as many bytes."""
        memory.copy_(torch.from_numpy(content.copy()).reshape(memory.shape))

    def new_bytes(self, *shape: int, what: str) -> torch.Tensor:
        """Zeros, uint8. AcceleratorMemoryError where they do not fit."""
        with self.memory_for(what):
            return torch.zeros(shape, dtype=torch.uint8, device=self.device)

    def forget(self) -> None:
        """Lets all of its memory go."""
        self._matrices.clear()
        self._constants.clear()
        self._counters.clear()

    def embed(self, embeddings: Weight, token_ids: torch.Tensor) -> torch.Tensor:
        """(T,) -> (T, H)."""
        return rows_of(self._on_device(embeddings), token_ids)

    def linear(self, weight: Weight, x: torch.Tensor, bias: Floats | None = None) -> torch.Tensor:
        """(T, row_length) -> (T, rows). Float32 weights, such as a router's, are multiplied as such always."""
        matrices, offsets = self._on_device(weight), self._constant_or_none(bias)
        if len(x) <= MAX_TOKENS:
            return multiply(matrices, x, offsets)
        product = _product_of_many(matrices, 0, x)
        return product if offsets is None else product + offsets

    def linear_per_head(self, weight: Weight, x: torch.Tensor) -> torch.Tensor:
        """(T, heads, row_length) -> (T, heads, rows), a matrix for each head."""
        matrices, (num_tokens, num_heads, row_length) = self._on_device(weight), x.shape
        if num_tokens <= MAX_TOKENS:
            heads = torch.arange(num_heads, dtype=torch.int32, device=self.device).repeat(num_tokens)
            products = multiply(matrices, x.reshape(-1, row_length), matrix_ids=heads)
            return products.reshape(num_tokens, num_heads, -1)
        return torch.stack([_product_of_many(matrices, head, x[:, head]) for head in range(num_heads)], dim=1)

    def rms_norm(self, x: torch.Tensor, weight: Floats, epsilon: float) -> torch.Tensor:
        """Over the last axis."""
        rows = x.reshape(-1, x.shape[-1])
        out = torch.empty_like(rows)
        self._norm(rows, weight, epsilon, out)
        return out.reshape(x.shape)

    def rms_norm_in_place(self, x: torch.Tensor, weight: Floats, epsilon: float) -> None:
        """x (T, length), which may be some columns of a wider array."""
        self._norm(x, weight, epsilon, x)

    def add(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """(T, H) each."""
        return x + y

    def gate(self, x: torch.Tensor, gates: torch.Tensor) -> torch.Tensor:
        """x (T, H) times the sigmoids of gates (T, 1)."""
        return x * torch.sigmoid(gates)

    def join_heads(self, first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
        """(T, heads, A) and (T, heads, B) -> (T, heads, A + B)."""
        return torch.cat([first, second], dim=-1)

    def turns(self, positions: torch.Tensor, frequencies: Doubles, magnitude: float) -> DeviceTurns:
        """Of positions (T,), for `rope`. In float64: a position times a frequency loses too much in float32."""
        angles = positions.double()[:, None] * self._constant(frequencies)
        return DeviceTurns((magnitude * torch.cos(angles)).float(), (magnitude * torch.sin(angles)).float())

    def rope(self, x: torch.Tensor, cosines: torch.Tensor, sines: torch.Tensor, pairing: RopePairing) -> None:
        """In place; x (T, heads, D)."""
        assert x.stride(2) == 1
        num_pairs = cosines.shape[1]
        rope_kernel[x.shape[0], x.shape[1]](
            x, cosines, sines, num_pairs, x.stride(0), x.stride(1),
            NEIGHBOURS=pairing is RopePairing.NEIGHBOURS, BLOCK=triton.next_power_of_2(num_pairs),
        )  # fmt: skip

    def store_rows(self, rows: CachedRows, context: PagedContext, x: torch.Tensor) -> None:
        """Writes x (T, heads, D) to where the tokens stand."""
        paged.store_rows(_rows(rows), _context(context), x)

    def attention(
        self, queries: torch.Tensor, keys: CachedRows, values: CachedRows, context: PagedContext, rule: AttentionRule
    ) -> torch.Tensor:
        """(T, heads, D) -> (T, heads, value D)."""
        sinks = self._constant_or_none(rule.sinks)
        device_rule = paged.DeviceRule(rule.scale, rule.window, rule.soft_cap, sinks)
        return paged.attention(queries, _rows(keys), _rows(values), _context(context), device_rule)

    def choose_experts(
        self, logits: torch.Tensor, rule: RoutingRule, selection_bias: Floats | None, counts: Counts | None = None
    ) -> Routes:
        """logits (T, E) -> (T, K) each. counts grow when the host synchronizes."""
        shape = (len(logits), rule.num_used)
        ids = torch.empty(shape, dtype=torch.int32, device=self.device)
        weights = torch.empty(shape, device=self.device)
        routing_kernel[(len(logits),)](
            logits.contiguous(), self._constant_or_none(selection_bias), ids, weights, rule.num_experts,
            rule.num_used, rule.num_groups, rule.num_groups_used, rule.scale, SMALLEST_WEIGHT_SUM,
            HAS_BIAS=selection_bias is not None, SIGMOID=rule.gating is Gating.SIGMOID,
            SOFTMAX=rule.gating is Gating.SOFTMAX, NORMALIZE=rule.normalize, GROUPED=rule.num_groups > 1,
            BLOCK_EXPERTS=triton.next_power_of_2(rule.num_experts), BLOCK_USED=triton.next_power_of_2(rule.num_used),
            BLOCK_GROUPS=triton.next_power_of_2(rule.num_groups),
        )  # fmt: skip
        if counts is not None:
            flat = ids.reshape(-1).long()
            self._counter(counts).index_add_(0, flat, torch.ones_like(flat))
        return Routes(ids, weights)

    def experts(self, mlp: ExpertMlp, x: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        """(T, H) -> (T, H), the weighted sum over each token's experts."""
        return self._mlp(mlp)(x, ids, weights)

    def mlp(self, mlp: ExpertMlp, x: torch.Tensor) -> torch.Tensor:
        """(T, H) -> (T, H) through the only expert."""
        return self._mlp(mlp).only(x)

    def count_not_finite(self, values: torch.Tensor) -> torch.Tensor:
        """(1,): how many of values (T, V), which may be some columns of a wider array, are no finite numbers."""
        return (~torch.isfinite(values)).sum(dtype=torch.int32).reshape(1)

    def _mlp(self, mlp: ExpertMlp) -> DeviceMlp:
        gate, up, down = (self._expert_weight(part) for part in (mlp.gate, mlp.up, mlp.down))
        return DeviceMlp(gate, up, down, mlp.activation, mlp.limit, mlp.weighs_inputs)

    def _expert_weight(self, part: ExpertWeight) -> DeviceWeight:
        bias, scale = self._constant_or_none(part.bias), self._constant_or_none(part.scale)
        return DeviceWeight(self._on_device(part.weight), bias, scale)

    def _norm(self, x: torch.Tensor, weight: Floats, epsilon: float, out: torch.Tensor) -> None:
        assert x.stride(1) == out.stride(1) == 1
        length = x.shape[1]
        rms_norm_kernel[(len(x),)](
            x, self._constant(weight), out, length, x.stride(0), out.stride(0), epsilon,
            BLOCK=triton.next_power_of_2(length),
        )  # fmt: skip

    def _on_device(self, weight: Weight) -> DeviceMatrices:
        """Held together with the host's array, so that nothing else comes to lie at its address."""
        place = (*_place(weight.blocks), weight.type)
        if place not in self._matrices:
            self._matrices[place] = weight.blocks, to_device(weight.type, weight.blocks, self.device)
        return self._matrices[place][1]

    def _constant(self, array: HostArray) -> torch.Tensor:
        place = _place(array)
        if place not in self._constants:
            self._constants[place] = array, torch.from_numpy(np.array(array)).to(self.device)
        return self._constants[place][1]

    def _constant_or_none(self, array: HostArray | None) -> torch.Tensor | None:
        return None if array is None else self._constant(array)

    def _counter(self, counts: Counts) -> torch.Tensor:
        place = _place(counts)
        if place not in self._counters:
            device_counts = torch.zeros(counts.shape, dtype=torch.int64, device=self.device)
            self._counters[place] = _Counter(counts, device_counts)
        return self._counters[place].device

    @contextmanager
    def memory_for(self, what: str) -> Iterator[None]:
        """As `failures`, and names what does not fit."""
        try:
            with engine_errors():
                yield
        except AcceleratorMemoryError as error:
            free = torch.cuda.mem_get_info(self.device)[0]
            raise AcceleratorMemoryError(
                f"{what}: it does not fit the memory of {torch.cuda.get_device_name(self.device)}, which has "
                f"{free:,} bytes free: give it fewer experts, or a shorter context"
            ) from error


def _place(array: HostArray) -> Place:
    return array.__array_interface__["data"][0], array.shape, array.strides, array.dtype.str


def _product_of_many(matrices: DeviceMatrices, matrix: int, x: torch.Tensor) -> torch.Tensor:
    """x (T, row_length) of a prompt times one matrix."""
    if isinstance(matrices, Plain) and matrices.values.dtype is torch.float32:
        return x @ matrices.values[matrix].T
    return bfloat16_product(x, unpacked(matrices, matrix))


def _rows(rows: CachedRows) -> paged.DeviceRows:
    pages: object = rows.pages
    assert isinstance(pages, torch.Tensor)  # of cache_memory
    return paged.DeviceRows(rows.type, rows.length, pages)


def _context(context: PagedContext) -> paged.DeviceContext:
    """Of what `upload` gave."""
    tables, sequences, positions = context.as_tuple
    return paged.DeviceContext(tables, sequences, positions)
