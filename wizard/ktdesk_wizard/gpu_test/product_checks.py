"""Products with weights of every type, experts, and rows of embeddings, against the references."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from ktdesk_engine.benchmark.random_weights import random_weight
from ktdesk_engine.kernels import Activation, ExpertMlp, ExpertWeight, reference
from ktdesk_engine.quants.formats import WeightType
from ktdesk_wizard.gpu_test.outcome import Figure
from ktdesk_wizard.gpu_test.subject import KEPT, Check, Subject, error_of, floats

SUMS = 2e-5
"""Rounding of float32 sums."""
BFLOAT16 = 2e-2
"""Of products whose both sides are rounded to bfloat16."""


def product_checks(subject: Subject) -> list[Check]:
    checks = [Check(f"products with {kind.name}", partial(_products, kind)) for kind in subject.sizes.weight_types]
    checks += [Check(f"experts, {kind.name.lower()}", partial(_experts, kind)) for kind in Activation]
    return [*checks, Check("a matrix for each head", _heads)]


def _products(kind: WeightType, subject: Subject) -> Iterator[Figure]:
    sizes, device = subject.sizes, subject.accelerator
    weight = random_weight(kind, sizes.num_rows, sizes.row_length, seed=int(kind))
    ids = np.array([3, 0, sizes.num_rows - 1], np.int32)
    exact = SUMS if kind in KEPT else BFLOAT16
    rows = subject.here(device.embed(weight, device.upload(ids)))
    yield error_of("rows", rows, reference.get_rows(weight, ids), 0 if kind in KEPT else exact)
    bias = floats(sizes.num_rows, seed=1)
    for tokens, limit in ((1, exact), (13, exact), (sizes.many_tokens, BFLOAT16)):
        x = floats(tokens, sizes.row_length, seed=tokens)
        got = subject.here(device.linear(weight, subject.on_device(x), bias))
        yield error_of(f"{tokens} tokens", got, reference.linear(weight, x, bias), limit)


def _experts(kind: Activation, subject: Subject) -> Iterator[Figure]:
    """Gate, up and down of different types, with biases."""
    device, (H, I, E, K) = subject.accelerator, subject.sizes.experts

    def part(weight_type: WeightType, rows: int, length: int, seed: int) -> ExpertWeight:
        return ExpertWeight(random_weight(weight_type, E, rows, length, seed=seed), floats(E, rows, seed=seed))

    parts = part(WeightType.Q4_0, I, H, 1), part(WeightType.Q5_1, I, H, 2), part(WeightType.Q8_0, H, I, 3)
    mlp = ExpertMlp(*parts, kind, 0.7)
    for tokens, limit in ((1, 1e-4), (4, 1e-4), (subject.sizes.many_tokens, 2 * BFLOAT16)):
        rng = np.random.default_rng(tokens)
        ids = np.stack([rng.permutation(E)[:K] for _ in range(tokens)]).astype(np.int32)
        x, shares = floats(tokens, H, seed=tokens), rng.random((tokens, K), np.float32)
        routes = device.upload(ids), subject.on_device(shares)
        got = subject.here(device.experts(mlp, subject.on_device(x), *routes))
        yield error_of(f"{tokens} tokens", got, reference.expert_mlp(mlp, x, ids, shares), limit)


def _heads(subject: Subject) -> Iterator[Figure]:
    device = subject.accelerator
    weight = random_weight(WeightType.Q8_0, 3, 7, 64, seed=1)
    for tokens, limit in ((1, SUMS), (subject.sizes.many_tokens, BFLOAT16)):
        x = floats(tokens, 3, 64, seed=tokens)
        got = subject.here(device.linear_per_head(weight, subject.on_device(x)))
        yield error_of(f"{tokens} tokens", got, reference.linear_per_head(weight, x), limit)
