"""What lies between the products: norms, rope, routing, and attention over pages, against the references."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

import numpy as np

from ktdesk_engine.kernels import (
    AttentionRule,
    CachedRows,
    PagedContext,
    RopePairing,
    cached_row_bytes,
    reference,
    reference_routing,
)
from ktdesk_engine.kernels.routing import Gating, RoutingRule
from ktdesk_engine.quants.formats import WeightType
from ktdesk_wizard.gpu_test.outcome import Figure
from ktdesk_wizard.gpu_test.product_checks import SUMS
from ktdesk_wizard.gpu_test.subject import Check, Subject, WrongResultError, error_of, floats

PAGE_SIZE = 64
CACHE_ERRORS = {WeightType.F32: 2e-5, WeightType.F16: 5e-3, WeightType.BF16: 3e-2, WeightType.Q8_0: 2e-5}
"""16-bit caches round queries and shares to their type."""


class _Heads(NamedTuple):
    """Of queries, of keys, and how long they are."""

    queries: int
    keys: int
    key_length: int
    value_length: int
    is_latent: bool = False
    """Values are the beginning of the keys."""


GROUPED = _Heads(8, 2, 128, 128)
LATENT = _Heads(16, 1, 576, 512, is_latent=True)
RULES = {
    "a window": AttentionRule(0.1, window=70),
    "a soft cap": AttentionRule(0.1, soft_cap=2.0),
    "sinks": AttentionRule(0.1, window=9, sinks=np.array([0.5, -20, 3, 30, 1, 2, 0, -1], np.float32)),
}


def layer_checks() -> list[Check]:
    plain = AttentionRule(0.08)
    attention = [
        Check(f"attention, {name}, {kind.name}", partial(_attention, heads, kind, plain))
        for name, heads in (("grouped queries", GROUPED), ("latent", LATENT))
        for kind in CACHE_ERRORS
    ]
    attention += [
        Check(f"attention with {name}", partial(_attention, GROUPED, WeightType.F32, rule))
        for name, rule in RULES.items()
    ]
    return [
        Check("norms", _norms),
        Check("rope", _rope),
        Check("sums, gates and joined heads", _joins),
        *(Check(f"routing, {gating.name.lower()}", partial(_routing, gating)) for gating in Gating),
        Check("numbers that are not finite", _not_finite),
        *attention,
    ]


def _norms(subject: Subject) -> Iterator[Figure]:
    device = subject.accelerator
    for length in (33, subject.sizes.row_length):
        x, weight = floats(3, length), floats(length, seed=1)
        want = reference.rms_norm(x, weight, 1e-6)
        yield error_of(f"{length} wide", subject.here(device.rms_norm(subject.on_device(x), weight, 1e-6)), want, SUMS)
    wide = floats(2, 40)
    on_device, weight = subject.on_device(wide), floats(24, seed=1)
    device.rms_norm_in_place(on_device[:, :24], weight, 1e-6)
    want = np.concatenate([reference.rms_norm(wide[:, :24], weight, 1e-6), wide[:, 24:]], axis=1)
    yield error_of("some columns", subject.here(on_device), want, SUMS)


def _rope(subject: Subject) -> Iterator[Figure]:
    device = subject.accelerator
    positions, frequencies = np.array([0, 5, 100000], np.int32), 10000.0 ** (-np.arange(32) / 32)
    cosines, sines = (angles.astype(np.float32) for angles in reference.turns(positions, frequencies, 1.5))
    for pairing in RopePairing:
        turns = device.turns(device.upload(positions), frequencies, 1.5)
        x = floats(3, 2, 80)
        turned = subject.on_device(x)
        device.rope(turned, *turns, pairing)
        yield error_of(pairing.name.lower(), subject.here(turned), reference.rope(x, cosines, sines, pairing), SUMS)


def _joins(subject: Subject) -> Iterator[Figure]:
    device = subject.accelerator
    x, y, gates = floats(3, 96), floats(3, 96, seed=1), floats(3, 1, seed=2)
    here, there = subject.here, subject.on_device
    yield error_of("a sum", here(device.add(there(x), there(y))), x + y, SUMS)
    yield error_of("gates", here(device.gate(there(x), there(gates))), reference.gate(x, gates), SUMS)
    heads = floats(3, 4, 16), floats(3, 4, 8, seed=1)
    yield error_of("heads", here(device.join_heads(*map(there, heads))), reference.join_heads(*heads), 0)


def _routing(gating: Gating, subject: Subject) -> Iterator[Figure]:
    device = subject.accelerator
    for groups, used in ((1, 1), (4, 2)):
        rule = RoutingRule(128, 8, gating, normalize=True, scale=2.5, num_groups=groups, num_groups_used=used)
        logits, bias = floats(4, 128, seed=groups), floats(128, seed=3) if groups > 1 else None
        got = device.choose_experts(subject.on_device(logits), rule, bias)
        want = reference_routing.choose_experts(logits, rule, bias)
        if not np.array_equal(subject.here(got.ids), want.ids):
            raise WrongResultError(f"{groups} groups: other experts are chosen than by the reference")
        yield error_of(f"{groups} groups", subject.here(got.weights), want.weights, SUMS)


def _not_finite(subject: Subject) -> Iterator[Figure]:
    values = np.array([[1, math.nan, 2], [math.inf, 3, -math.inf]], np.float32)
    found = int(subject.here(subject.accelerator.count_not_finite(subject.on_device(values)))[0])
    if found != 3:
        raise WrongResultError(f"{found} of 3 were found")
    yield Figure("found", found)


def _attention(heads: _Heads, kind: WeightType, rule: AttentionRule, subject: Subject) -> Iterator[Figure]:
    """Two sequences, of which one is short, whose pages lie in no order."""
    device, lengths = subject.accelerator, (5, subject.sizes.context)
    cache = _Cache(subject, heads, kind, lengths)
    last = lengths[1] - 1
    for name, positions in {
        "few tokens": [[4], [63, 64, last]],
        "many tokens": [[3, 4], list(range(lengths[1] - 20, lengths[1]))],
    }.items():
        context = cache.context(positions)
        queries = floats(len(context.positions), heads.queries, heads.key_length, seed=9)
        on_device = PagedContext(*map(device.upload, context.as_tuple))
        got = subject.here(device.attention(subject.on_device(queries), *cache.on_device, on_device, rule))
        want = reference.attention(queries, *cache.here, context, rule)
        yield error_of(name, got, want, CACHE_ERRORS[kind])


class _Cache:
    """Keys and values of two sequences, stored by the device, and by the reference."""

    def __init__(self, subject: Subject, heads: _Heads, kind: WeightType, lengths: tuple[int, int]) -> None:
        self._num_pages = [-(-length // PAGE_SIZE) for length in lengths]
        self._pages = np.random.default_rng(5).permutation(sum(self._num_pages)).astype(np.int32)
        whole = self.context([list(range(length)) for length in lengths])
        keys = self._stored(subject, kind, heads.keys, heads.key_length, whole, seed=1)
        if heads.is_latent:
            values = tuple(CachedRows(kind, heads.value_length, rows.pages) for rows in keys)
        else:
            values = self._stored(subject, kind, heads.keys, heads.value_length, whole, seed=2)
        self.on_device, self.here = (keys[0], values[0]), (keys[1], values[1])

    def context(self, positions: list[list[int]]) -> PagedContext:
        """So many positions of each sequence."""
        tables = np.zeros((2, max(self._num_pages)), np.int32)
        tables[0, : self._num_pages[0]] = self._pages[: self._num_pages[0]]
        tables[1, : self._num_pages[1]] = self._pages[self._num_pages[0] :]
        sequences = np.repeat(np.arange(2), [len(of_one) for of_one in positions]).astype(np.int32)
        return PagedContext(tables, sequences, np.concatenate(positions).astype(np.int32))

    def _stored(
        self, subject: Subject, kind: WeightType, num_heads: int, length: int, whole: PagedContext, seed: int
    ) -> tuple[CachedRows, CachedRows]:
        device = subject.accelerator
        size = (len(self._pages), num_heads, PAGE_SIZE, cached_row_bytes(kind, length))
        x = floats(len(whole.positions), num_heads, length, seed=seed)
        on_device = CachedRows(kind, length, device.cache_memory(*size))
        device.store_rows(on_device, PagedContext(*map(device.upload, whole.as_tuple)), subject.on_device(x))
        here = CachedRows(kind, length, np.zeros(size, np.uint8))
        reference.store_rows(here, whole, x)
        return on_device, here
