"""The planner's view of a file, against what the engine makes of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from gguf import GGMLQuantizationType
from gguf.quants import quantize
from model_variants import Tensors, in_mixed_types, write_variant
from tiny_shapes import TINY, TinyExperts, TinyHeads, TinyModel

from ktdesk_engine import kernels
from ktdesk_engine.backends.cpu import CpuBackend
from ktdesk_engine.gguf.file import GGUFFile
from ktdesk_engine.models.base import Decoder
from ktdesk_engine.models.registry import family_of
from ktdesk_engine.packing import packed_model_bytes
from ktdesk_wizard.plan.model import EMBEDDING, PlannedModel, model_of_file


def loaded(path: Path) -> Decoder:
    with GGUFFile.open(path) as file:
        return family_of(file)(file, CpuBackend(kernels.worker_pool(1)))


def planned_panels(model: PlannedModel) -> int:
    head = [t for t in model.tensors if t.name != EMBEDDING or model.is_tied]
    return sum(tensor.memory_bytes(True) for tensor in head if tensor.has_panels)


@pytest.mark.parametrize("name", TINY)
def test_the_cache_of_each_family_is_planned_as_the_engine_makes_it(
    name: str, tiny_model: Callable[[str], Path]
) -> None:
    path = tiny_model(name)
    assert [layer.shape for layer in model_of_file(path).layers] == loaded(path).cache_shapes


@pytest.mark.parametrize("name", ["llama-tied", "llama-moe", "qwen2moe", "gpt-oss", "glm4moe", "minimax-m2"])
def test_panels_are_planned_to_the_byte(name: str, tmp_path: Path) -> None:
    def quantize_all(tensors: Tensors) -> None:
        for tensor, values in tensors.items():
            if values.ndim > 1 and "ffn_gate_inp" not in tensor and not tensor.endswith(".bias"):
                tensors[tensor] = quantize(values, GGMLQuantizationType.Q8_0)

    path = write_variant(name, tmp_path / "model.gguf", change=quantize_all)
    assert planned_panels(model_of_file(path)) == packed_model_bytes(loaded(path).packables) > 0


@pytest.mark.parametrize("start", [0, 5, 10, 15, 20])
def test_panels_of_every_type_are_planned_to_the_byte(start: int, tmp_path: Path) -> None:
    shape = TinyModel("qwen3moe", 2, 256, 4, TinyHeads(2, 64, norm="head"), 1e6, 64, 256, TinyExperts(4, 2, 256))
    path = write_variant(shape, tmp_path / "model.gguf", change=in_mixed_types(start))
    assert planned_panels(model_of_file(path)) == packed_model_bytes(loaded(path).packables)


def test_a_file_without_a_head_of_its_own_is_tied(tiny_model: Callable[[str], Path]) -> None:
    assert model_of_file(tiny_model("qwen3")).is_tied
    assert not model_of_file(tiny_model("qwen3moe")).is_tied


def test_what_a_token_uses_is_in_the_header(tiny_model: Callable[[str], Path]) -> None:
    model = model_of_file(tiny_model("qwen3moe"))
    assert (model.num_experts, model.num_used, model.expert_width) == (16, 4, 64)
    assert (model.hidden, model.context_length, len(model.layers)) == (128, 512, 3)
    assert model.file_bytes == 4 * model.num_values


def test_where_one_key_is_for_experts_and_dense_layers_the_width_is_that_of_the_tensors(
    tiny_model: Callable[[str], Path],
) -> None:
    model = model_of_file(tiny_model("llama-moe"))
    assert model.expert_width == next(t.shape[1] for t in model.tensors if "ffn_up_exps" in t.name) > 0
