"""A model with another weight type in every tensor: what it says is what its values in float32 say."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from model_variants import TYPES, Tensors, dequantized, in_mixed_types, in_types, write_variant
from random_blocks import set_scales
from scoring import load_model, score
from tiny_shapes import TinyExperts, TinyHeads, TinyLatent, TinyModel

from ktdesk_engine import kernels
from ktdesk_engine.config import Compute, EngineConfig
from ktdesk_engine.engine import Engine
from ktdesk_engine.errors import ModelFileError
from ktdesk_engine.kernels import Weight
from ktdesk_engine.quants.formats import BLOCKS, WeightType

PROMPT = [*range(40, 64), 1, 2]  # longer than the window of gpt-oss
STARTS = (0, 5, 10, 15, 20)
"""With them, each type is in tensors of three kinds and more."""
COMPUTE: tuple[Compute, ...] = ("float32", "int8")

HEADS = TinyHeads(2, 64)
LATENT = TinyLatent(q_lora=256, kv_lora=256, nope=256, value=256)
EXPERTS = TinyExperts(4, 2, 256)

# All rows are whole blocks of 256.
# fmt: off
SHAPES = {
    "llama-dense": TinyModel("llama", 2, 256, 4, HEADS, 1e4, 64, 256),
    "llama-moe": TinyModel("llama", 2, 256, 4, HEADS, 1e6, 64, 256, EXPERTS),
    "qwen3moe": TinyModel("qwen3moe", 2, 256, 4, TinyHeads(2, 64, norm="head"), 1e6, 64, 256, EXPERTS),
    "gpt-oss": TinyModel(
        "gpt-oss", 2, 256, 4, TinyHeads(2, 64, bias=True, output_bias=True, sinks=True, window=16), 150000.0, 64, 256,
        TinyExperts(4, 2, 256, router_bias=True, bias=True), ffn_norm="post_attention_norm",
    ),
    "deepseek2": TinyModel(
        "deepseek2", 2, 256, 2, LATENT, 1e4, 64, 256,
        TinyExperts(4, 2, 256, shared_count=1, gating=2, scale=2.5, normalize=True, selection_bias=True),
        dense_layers=1,
    ),
}
# fmt: on


class Pair(NamedTuple):
    mixed: Path
    floats: Path
    """The same values in float32."""


@pytest.fixture(
    scope="module",
    params=[(name, start) for name in SHAPES for start in STARTS],
    ids=lambda param: f"{param[0]}-from-{TYPES[param[1]].name}",
)
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    name, start = request.param
    folder = tmp_path_factory.mktemp("mixed")
    change = in_mixed_types(start)
    pair = Pair(
        write_variant(SHAPES[name], folder / "mixed.gguf", change=change),
        write_variant(SHAPES[name], folder / "floats.gguf", change=dequantized(change)),
    )
    yield pair
    shutil.rmtree(folder)


@pytest.mark.parametrize("isa", kernels.isas())
def test_a_model_of_mixed_types_says_what_its_values_in_float32_say(pair: Pair, isa: str) -> None:
    want = score(load_model(pair.floats, isa), PROMPT)
    assert np.abs(score(load_model(pair.mixed, isa), PROMPT) - want).max() < 1e-4


@pytest.mark.parametrize("isa", kernels.isas(with_variants=True))
def test_packed_it_says_so_but_for_the_rounding_of_what_is_multiplied(pair: Pair, isa: str) -> None:
    config = EngineConfig(compute="int8", cache_type="float32", isa=isa, num_threads=2)
    with Engine.load(pair.mixed, config) as engine:
        got = engine.score(PROMPT)
    assert np.abs(got - score(load_model(pair.floats), PROMPT)).max() < 2e-2  # 0.008 at most was seen


def spoiled(weight_type: WeightType, scale: float) -> Callable[[Tensors], None]:
    """All matrices in one type, with a scale that is no finite number in each seventh block."""

    def change(tensors: Tensors) -> None:
        in_types(lambda _: weight_type)(tensors)
        for weight in tensors.values():
            if isinstance(weight, Weight):
                blocks = weight.blocks.reshape(-1, BLOCKS[weight_type].bytes)
                set_scales(weight_type, blocks[::7], scale)

    return change


@pytest.mark.parametrize("name", ["gpt-oss", "deepseek2"])
@pytest.mark.parametrize("scale", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("weight_type", WeightType, ids=lambda weight_type: weight_type.name)
def test_scales_that_are_no_finite_numbers_end_in_one_line(
    weight_type: WeightType, scale: float, name: str, tmp_path: Path
) -> None:
    shape = replace(SHAPES[name], layers=1, dense_layers=0)
    path = write_variant(shape, tmp_path / "spoiled.gguf", change=spoiled(weight_type, scale))
    for compute in COMPUTE:
        with pytest.raises(
            ModelFileError, match=r"spoiled.gguf: tensor '.*' has .* not finite, first in .* 0"
        ) as caught:
            Engine.load(path, EngineConfig(compute=compute, num_threads=2))
        assert "\n" not in str(caught.value)
