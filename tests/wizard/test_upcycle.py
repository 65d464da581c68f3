"""A dense model made into a mixture of experts says the same, and is one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from gguf import GGUFReader, GGUFWriter
from tiny_models import TINY, write_model

from ktdesk_engine.config import EngineConfig
from ktdesk_engine.engine import Engine
from ktdesk_engine.gguf.file import GGUFFile
from ktdesk_wizard.demo_model import SAMPLING
from ktdesk_wizard.errors import SourceError
from ktdesk_wizard.report import Silence
from ktdesk_wizard.upcycle import Recipe, upcycle

TinyModel = Callable[[str], Path]
RECIPE = Recipe(title="Tiny, 8 experts", licence="apache-2.0", num_experts=8, num_used=2, seed=1)


@pytest.fixture
def made(tiny_model: TinyModel, tmp_path: Path) -> Path:
    path = tmp_path / "made.gguf"
    upcycle(tiny_model("llama-dense"), path, RECIPE, Silence())
    return path


@pytest.mark.parametrize("name", ["llama-dense", "llama-tied"])
def test_it_says_what_the_dense_model_says(name: str, tiny_model: TinyModel, tmp_path: Path) -> None:
    made = tmp_path / "made.gguf"
    upcycle(tiny_model(name), made, RECIPE, Silence())
    ids = list(range(30, 90))
    exact = EngineConfig(compute="float32")  # else tiles round in the one or the other, as each load measures
    with Engine.load(tiny_model(name), exact) as dense, Engine.load(made, exact) as moe:
        np.testing.assert_allclose(moe.score(ids), dense.score(ids), rtol=0, atol=1e-4)
        assert dense.score(ids).std() > 0.5  # of what is compared


def test_it_says_how_to_sample(tiny_model: TinyModel, tmp_path: Path) -> None:
    made = tmp_path / "made.gguf"
    upcycle(tiny_model("llama-dense"), made, replace(RECIPE, sampling=SAMPLING), Silence())
    with Engine.load(made, EngineConfig(compute="float32")) as moe:
        assert (moe.recommended_sampling.temperature, moe.recommended_sampling.top_p) == pytest.approx((0.2, 0.9))


def test_each_expert_is_a_copy_and_the_router_is_random(made: Path, tiny_model: TinyModel) -> None:
    with GGUFFile.open(made) as moe, GGUFFile.open(tiny_model("llama-dense")) as dense:
        for part in ("gate", "up", "down"):
            experts = moe.data(f"blk.1.ffn_{part}_exps.weight")
            assert len(experts) == 8
            for expert in experts:
                np.testing.assert_array_equal(expert, dense.data(f"blk.1.ffn_{part}.weight"))
        routers = [moe.data(f"blk.{layer}.ffn_gate_inp.weight").view(np.float32) for layer in (0, 1)]
    assert routers[0].shape == (8, 128)
    assert 0.7 < routers[0].std() * 128**0.5 < 1.3
    assert not np.array_equal(routers[0], routers[1])


def test_the_rest_of_the_file_is_kept(made: Path, tiny_model: TinyModel) -> None:
    """Read by the independent reader, so that what it says of types and lengths counts too."""
    moe, dense = GGUFReader(made), GGUFReader(tiny_model("llama-dense"))
    for name, field in dense.fields.items():
        if name not in ("general.name", "GGUF.kv_count", "GGUF.tensor_count"):
            assert moe.fields[name].types == field.types, name
            assert moe.fields[name].contents() == field.contents(), name
    tensors = {tensor.name: tensor for tensor in moe.tensors}
    for tensor in dense.tensors:
        if ".ffn_gate." not in tensor.name and ".ffn_up." not in tensor.name and ".ffn_down." not in tensor.name:
            np.testing.assert_array_equal(tensors[tensor.name].data, tensor.data)


def test_its_name_licence_and_origin_are_in_the_file(made: Path) -> None:
    with GGUFFile.open(made) as file:
        assert file.metadata["general.name"] == "Tiny, 8 experts"
        assert file.metadata["general.license"] == "apache-2.0"
        assert "tiny llama-dense" in file.metadata["general.description"]
        assert file.hparams().integer("expert_used_count") == 2


def test_a_file_with_its_own_alignment_is_read_and_written_anew(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def align(writer: GGUFWriter) -> None:
        writer.add_custom_alignment(256)

    source, made = tmp_path / "aligned.gguf", tmp_path / "made.gguf"
    write_model(TINY["llama-dense"], source, "llama-dense", seed=1, edit=align)
    upcycle(source, made, RECIPE, Silence())
    with GGUFFile.open(made) as file:
        assert "general.alignment" not in file.metadata
        assert len(file.data("blk.1.ffn_up_exps.weight")) == 8
    assert caplog.messages == []  # the writer warns of keys that are given twice


def test_the_same_recipe_makes_the_same_bytes(made: Path, tiny_model: TinyModel, tmp_path: Path) -> None:
    again = tmp_path / "again.gguf"
    upcycle(tiny_model("llama-dense"), again, RECIPE, Silence())
    assert again.read_bytes() == made.read_bytes()


def test_progress_ends_at_all_of_the_bytes(tiny_model: TinyModel, tmp_path: Path) -> None:
    class Record(Silence):
        seen: list[tuple[int, int]] = []  # noqa: RUF012 (one test)

        def advance(self, done_bytes: int, total_bytes: int) -> None:
            self.seen.append((done_bytes, total_bytes))

    made = tmp_path / "made.gguf"
    upcycle(tiny_model("llama-dense"), made, RECIPE, Record())
    assert Record.seen == sorted(Record.seen)
    done_bytes, total_bytes = Record.seen[-1]
    assert done_bytes == total_bytes
    assert 0.9 * made.stat().st_size < total_bytes <= made.stat().st_size


@pytest.mark.parametrize(("name", "words"), [("llama-moe", "already"), ("qwen2", "'qwen2'")])
def test_another_kind_of_model_is_refused(name: str, words: str, tiny_model: TinyModel, tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=words):
        upcycle(tiny_model(name), tmp_path / "made.gguf", RECIPE, Silence())
