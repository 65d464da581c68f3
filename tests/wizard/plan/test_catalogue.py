"""Models of the catalogue: their weights and caches add up to what is published of them."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from captured import captured_facts
from shared_data import shared_data

from ktdesk_engine.quants.formats import BLOCKS, WeightType
from ktdesk_profiles.models import load_models
from ktdesk_wizard.plan.cache import needed_bytes
from ktdesk_wizard.plan.catalogue import model_of_profile
from ktdesk_wizard.plan.choose import choose_plan
from ktdesk_wizard.plan.model import PlannedModel, PlannedTensor
from ktdesk_wizard.plan.planner import make_plan
from ktdesk_wizard.plan.quantization import BITS_PER_WEIGHT, requantized
from ktdesk_wizard.plan.wishes import EngineAbilities, Wishes

GIB = 2**30
MODELS = load_models()
KIB_PER_TOKEN = {
    "deepseek-v2-lite": 30.4,
    "deepseek-v2": 67.5,
    "deepseek-v3": 68.6,
    "kimi-k2": 68.6,
    "glm-5": 87.8,
    "qwen2-57b-a14b": 56.0,
    "qwen3-30b-a3b": 96.0,
    "qwen3-235b-a22b": 188.0,
    "qwen3-coder-480b-a35b": 248.0,
    "qwen3-next-80b-a3b": 24.0,
    "qwen3.5-35b-a3b": 20.0,
    "qwen3.5-122b-a10b": 24.0,
    "qwen3.5-397b-a17b": 30.0,
    "glm-4.5-air": 184.0,
    "glm-4.7": 368.0,
    "gpt-oss-20b": 24.0,
    "gpt-oss-120b": 36.0,
    "minimax-m2": 248.0,
    "minimax-m3": 120.0,
    "mixtral-8x7b": 128.0,
    "mixtral-8x22b": 224.0,
    "olmoe-1b-7b": 128.0,
    "ernie-4.5-21b-a3b": 56.0,
    "hunyuan-a13b": 128.0,
    "granite-4.0-h-small": 16.0,
    "granite-3.1-3b-a800m": 64.0,
}
"""In 16 bits, of layers that see all."""


@pytest.mark.parametrize("name", MODELS)
def test_weights_add_up_to_what_is_published(name: str) -> None:
    """Rounded by their makers, and without what files leave out: vision, and the token after the next."""
    model = model_of_profile(MODELS[name])
    assert model.num_values / 1e9 == pytest.approx(MODELS[name].total_billions, rel=0.03)


@pytest.mark.parametrize("name", KIB_PER_TOKEN)
def test_a_token_takes_the_bytes_of_its_heads_or_latents(name: str) -> None:
    layers = [layer for layer in model_of_profile(MODELS[name]).layers if not layer.window]
    token = needed_bytes(layers, 1, "f16") - needed_bytes(layers, 0, "f16")
    assert token / 1024 == pytest.approx(KIB_PER_TOKEN[name], abs=0.06)


@pytest.mark.parametrize(("name", "gib"), [("deepseek-v3", 2.14), ("qwen3-30b-a3b", 3.00)])
def test_the_cache_at_32768_tokens(name: str, gib: float) -> None:
    assert needed_bytes(model_of_profile(MODELS[name]).layers, 32768, "f16") / GIB == pytest.approx(gib, abs=0.005)


@pytest.mark.parametrize(
    ("name", "quantization", "gib"),
    [
        ("deepseek-v3", "Q8_0", 664.3),
        ("deepseek-v3", "Q4_K_M", 376.7),
        ("deepseek-v3", "IQ4_XS", 333.1),
        ("kimi-k2", "Q8_0", 1016.6),
        ("qwen3-235b-a22b", "Q4_K_M", 132.4),
        ("gpt-oss-120b", "MXFP4", 59.6),
    ],
)
def test_files_are_as_large_as_those_that_were_seen(name: str, quantization: str, gib: float) -> None:
    model = requantized(model_of_profile(MODELS[name]), quantization)
    assert model.file_bytes / GIB == pytest.approx(gib, rel=0.03)


def with_types(model: PlannedModel, schema: str, recipe: str) -> PlannedModel:
    """The true type of each tensor, from a schema of a released file."""
    part = re.split(r"^\[", schema, flags=re.MULTILINE)
    lines = next(text for text in part if text.startswith(f"{recipe}]")).splitlines()
    default = lines[0].partition("] ")[2]
    own = dict(line.split() for line in lines[1:] if line.strip())

    def typed(tensor: PlannedTensor) -> PlannedTensor:
        if not tensor.is_matrix or tensor.tensor_class == "router":
            return tensor
        kind = WeightType[own.get(tensor.name, default).upper()]
        block = BLOCKS[kind]
        return replace(
            tensor, type_name=kind.name, num_bytes=tensor.num_values // block.values * block.bytes, weight_type=kind
        )

    return replace(model, tensors=tuple(typed(tensor) for tensor in model.tensors), quantization=recipe)


@pytest.mark.parametrize(
    ("file", "name"),
    [("deepseek-v3.1", "deepseek-v3"), ("qwen3-coder-next", "qwen3-next-80b-a3b"), ("glm-4.6v", "glm-4.5-air")],
)
@pytest.mark.parametrize("recipe", ["Q8_0", "Q4_K_M", "Q3_K_M", "IQ4_XS"])
def test_the_bits_of_a_quantization_are_those_of_the_true_mixture(file: str, name: str, recipe: str) -> None:
    """Mixtures differ from model to model: most where rows are no whole blocks, and take a larger type (GLM)."""
    model = model_of_profile(MODELS[name])
    true = with_types(model, shared_data(f"schemas/{file}.schema").read_text(), recipe)
    assert requantized(model, recipe).file_bytes == pytest.approx(true.file_bytes, rel=0.1)


def test_a_workstation_gets_the_most_exact_deepseek_that_fits(tmp_path: Path) -> None:
    """880 GiB free: Q8_0 takes 664."""
    abilities = EngineAbilities(frozenset({"deepseek2"}), has_gpu=False)
    model = model_of_profile(MODELS["deepseek-v3"])
    plan = choose_plan(captured_facts("snc", tmp_path), model, Wishes(context=32768), abilities)
    assert (plan.quantization, plan.verdict.kind) == ("Q8_0", "fits")
    small = choose_plan(captured_facts("desktop", tmp_path / "small"), model, Wishes(context=32768), abilities)
    assert small.verdict.kind == "does not fit"
    assert small.quantization == "IQ1_S"
    assert small.verdict.change is not None


def test_the_largest_bits_come_first() -> None:
    bits = list(BITS_PER_WEIGHT.values())
    assert bits == sorted(bits, reverse=True)


def test_the_context_of_a_model_that_is_not_here_leaves_room_for_its_weights(tmp_path: Path) -> None:
    """The cache takes at most a quarter of what weights leave, as the engine decides it for a file."""
    model = requantized(model_of_profile(MODELS["qwen3-30b-a3b-2507"]), "Q8_0")
    plan = make_plan(captured_facts("desktop", tmp_path), model, Wishes(), EngineAbilities(frozenset(), False))
    cache = needed_bytes(model.layers, plan.context, "f16")
    assert 0.2 * (58 * GIB - model.file_bytes) < cache <= 0.25 * (58 * GIB - model.file_bytes)
