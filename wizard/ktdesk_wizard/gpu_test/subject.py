"""What is tested, at which sizes, and how checks talk to it through the accelerator's interface alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from ktdesk_engine.backends.accelerator import Accelerator
from ktdesk_engine.backends.backend import Recorder
from ktdesk_engine.benchmark.layer import LayerShape
from ktdesk_engine.config import AcceleratorKind
from ktdesk_engine.errors import AcceleratorError
from ktdesk_engine.kernels import Floats, Ids, Weight, WorkerPool
from ktdesk_engine.quants.formats import WeightType
from ktdesk_wizard.gpu_test.memory_model import ModelShape
from ktdesk_wizard.gpu_test.outcome import Figure

KEPT = (
    *(WeightType.F32, WeightType.F16, WeightType.BF16, WeightType.Q4_0, WeightType.Q4_1, WeightType.Q5_0),
    *(WeightType.Q5_1, WeightType.Q8_0, WeightType.Q2_K, WeightType.Q3_K, WeightType.Q4_K, WeightType.Q5_K),
    *(WeightType.Q6_K, WeightType.IQ4_NL, WeightType.IQ4_XS, WeightType.MXFP4),
)
"""Types whose values lie on a GPU exactly."""
OTHERS = tuple(kind for kind in WeightType if kind not in KEPT)
"""Those that the host unpacks, and that are rounded to bfloat16 there."""


@dataclass(frozen=True)
class Sizes:
    """Of what is computed: as models have them, or small for a rehearsal."""

    weight_types: tuple[WeightType, ...]
    row_length: int
    """Of matrices: a whole number of blocks of every type."""
    num_rows: int
    experts: LayerShape
    many_tokens: int
    """A prompt's: more than vectors are made for."""
    context: int
    """Positions that attention looks at."""
    copy_bytes: int
    large_rows: int
    """Of square matrices that no cache holds."""
    model: ModelShape
    decode_steps: int
    prompt: int
    """Tokens of one piece of a prompt."""
    repeat: int


REAL = Sizes(
    weight_types=(*KEPT, *OTHERS),
    row_length=2048,
    num_rows=771,
    experts=LayerShape(2048, 768, 5, 3),
    many_tokens=40,
    context=500,
    copy_bytes=256 << 20,
    large_rows=8192,
    model=ModelShape(2048, 4, 32, 4, 128, LayerShape(2048, 768, 128, 8)),
    decode_steps=24,
    prompt=512,
    repeat=21,
)
"""Layers of Qwen3-30B-A3B."""
SMALL = Sizes(
    weight_types=(*KEPT, *OTHERS),
    row_length=256,
    num_rows=17,
    experts=LayerShape(64, 32, 5, 3),
    many_tokens=20,
    context=200,
    copy_bytes=1 << 20,
    large_rows=256,
    model=ModelShape(320, 3, 4, 2, 64, LayerShape(256, 256, 8, 4)),
    decode_steps=6,
    prompt=64,
    repeat=3,
)


@dataclass(frozen=True)
class Subject:
    """An accelerator, and the CPU beside it."""

    kind: AcceleratorKind
    accelerator: Accelerator
    pool: WorkerPool
    sizes: Sizes
    is_rehearsal: bool = True
    """Nothing is asked of its speed."""
    kept: list[object] = field(default_factory=list)
    """What the device may still read when a check is over."""

    def aim(self, figure: Figure) -> Figure:
        """Without its aims where they are those of a GPU, and this is none."""
        return Figure(figure.name, figure.value, figure.unit) if self.is_rehearsal else figure

    def on_device(self, values: Floats) -> Floats:
        """(T, ...) there: rows of an embedding in float32 come as they are."""
        rows = np.ascontiguousarray(values, np.float32).reshape(len(values), -1)
        ids: Ids = np.arange(len(rows), dtype=np.int32)
        device = self.accelerator
        return device.embed(as_weight(rows), device.upload(ids)).reshape(values.shape)

    def here(self, values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """What the device computed, on the host."""
        found = self.accelerator.download(values)
        self.accelerator.synchronize()
        return np.array(found)

    @property
    def records(self) -> bool:
        """Whether steps can be recorded on the device."""
        return self.recorder() is not None

    def recorder(self) -> Recorder | None:
        """None where nothing can be recorded on the device."""
        try:
            return self.accelerator.program()
        except AcceleratorError:
            return None


class Check(NamedTuple):
    """One line of the report. `run` yields figures and raises where something is wrong."""

    name: str
    run: Callable[[Subject], Iterator[Figure]]


class WrongResultError(Exception):
    """The accelerator computes something else than the reference."""


class SkippedError(Exception):
    """There is nothing to check here; says why."""


def as_weight(rows: Floats) -> Weight:
    """(rows, length) in float32."""
    return Weight(WeightType.F32, np.ascontiguousarray(rows, np.float32).view(np.uint8))


def floats(*shape: int, seed: int = 0) -> Floats:
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


def error_of(what: str, got: np.ndarray[Any, Any], want: np.ndarray[Any, Any], at_most: float) -> Figure:
    """The largest difference, in parts of the largest value. WrongResultError where it is too large, or no number."""
    if got.shape != want.shape:
        raise WrongResultError(f"{what}: the shape is {got.shape} instead of {want.shape}")
    error = float(np.abs(got - want).max() / max(float(np.abs(want).max()), 1e-30))
    if not error <= at_most:
        raise WrongResultError(f"{what}: off by {error:.2g} of the largest value, and {at_most:.2g} is rounding")
    return Figure(f"{what}: error", error)
