"""Several sequences decoded together, eagerly and by recorded programs: always what each gives alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from model_variants import Tensors, in_types, write_variant
from scoring import load_model
from tiny_models import TINY

from ktdesk_engine.config import CACHE_TYPES, CacheType, EngineConfig
from ktdesk_engine.engine import Engine
from ktdesk_engine.errors import ConfigError, ContextOverflowError
from ktdesk_engine.kernels import Floats
from ktdesk_engine.kernels.pools import NEVER
from ktdesk_engine.kv_cache import PAGE_SIZE, CachedSequence, KVCache
from ktdesk_engine.layers.mlp import Mlp
from ktdesk_engine.models.base import Decoder
from ktdesk_engine.quants.formats import WeightType
from ktdesk_engine.runner import MAX_PROGRAM_SEQUENCES, Runner

TinyModel = Callable[[str], Path]
SIZES = range(1, MAX_PROGRAM_SEQUENCES + 1)
VOCAB = 250
LENGTHS = [5, 63, 1, 64, 62, 2, 100, 7, 3, 40, 61, 9, 4, 128, 6, 30, 11]
"""Of prompts: some reach a new page while they are decoded."""


def make_runner(model: Decoder, cache_type: CacheType = "f16", use_programs: bool = True) -> Runner:
    cache = KVCache(model.cache_shapes, 256, cache_type, num_sequences=len(LENGTHS))
    return Runner(model, cache, prefill_chunk=64, vocab_size=VOCAB, use_programs=use_programs)


def prefilled(runner: Runner, lengths: list[int]) -> list[CachedSequence]:
    sequences = [CachedSequence() for _ in lengths]
    for number, (sequence, length) in enumerate(zip(sequences, lengths, strict=True)):
        runner.prefill(sequence, prompt(number, length))
    return sequences


def prompt(number: int, length: int) -> list[int]:
    return np.random.default_rng(number).integers(0, VOCAB, length).tolist()


def decoded(runner: Runner, sequences: list[CachedSequence], num_steps: int) -> Floats:
    """(steps, S, V). The tokens of a sequence depend on its number and the step alone."""
    tokens = np.random.default_rng(99).integers(0, VOCAB, (num_steps, len(LENGTHS)))
    return np.stack([runner.decode(sequences, row[: len(sequences)].tolist()).copy() for row in tokens])


def assert_programs_change_no_bit(model: Decoder, cache_type: CacheType, sizes: list[int] | range) -> None:
    results = []
    for use_programs in (True, False):
        runner = make_runner(model, cache_type, use_programs)
        results.append([])
        for size in sizes:
            sequences = prefilled(runner, LENGTHS[:size])
            results[-1].append(decoded(runner, sequences, 4))
            for sequence in sequences:
                runner.release(sequence)
    assert (len(runner._programs), runner.program_bytes) == (0, 0)
    for by_program, eager in zip(*results, strict=True):
        np.testing.assert_array_equal(by_program, eager)


@pytest.mark.parametrize("name", TINY)
def test_programs_change_no_bit_in_any_family_for_any_number_of_sequences(name: str, tiny_model: TinyModel) -> None:
    assert_programs_change_no_bit(load_model(tiny_model(name)), "f16", SIZES)


@pytest.mark.parametrize("name", ["llama-dense", "qwen3moe", "deepseek2-v3"])
@pytest.mark.parametrize("cache_type", CACHE_TYPES)
def test_programs_change_no_bit_in_any_cache(name: str, cache_type: CacheType, tiny_model: TinyModel) -> None:
    model = load_model(tiny_model(name))
    try:
        assert_programs_change_no_bit(model, cache_type, [1, 3])
    except ConfigError:
        pytest.skip(f"the heads of {name} are no whole blocks of {cache_type}")


@pytest.fixture
def packed_model(tmp_path: Path) -> Path:
    """Tiny llama-moe with matrices in panels; the router stays as it is."""

    def change(tensors: Tensors) -> None:
        routers = {name: values for name, values in tensors.items() if "ffn_gate_inp" in name}
        in_types(lambda index: (WeightType.Q8_0, WeightType.Q4_0)[index % 2])(tensors)
        tensors.update(routers)

    return write_variant("llama-moe", tmp_path / "packed.gguf", change=change)


@pytest.mark.parametrize("min_tile_rows", [1, 3, NEVER])
def test_programs_change_no_bit_with_packed_weights(packed_model: Path, min_tile_rows: int) -> None:
    with Engine.load(packed_model, EngineConfig(num_threads=2)) as engine:
        engine.pool.min_tile_rows = min_tile_rows
        assert_programs_change_no_bit(engine.model, "f16", [1, 2, 16])


@pytest.mark.parametrize("name", ["llama-moe", "qwen2moe", "deepseek2-v3", "gpt-oss"])
@pytest.mark.parametrize("use_programs", [True, False])
def test_a_sequence_gives_the_same_bits_alone_and_in_company(
    name: str, use_programs: bool, tiny_model: TinyModel
) -> None:
    assert_company_changes_no_bit(load_model(tiny_model(name)), use_programs)


def test_packed_weights_give_the_same_bits_alone_and_in_company_on_vectors(packed_model: Path) -> None:
    with Engine.load(packed_model, EngineConfig(num_threads=2)) as engine:
        engine.pool.min_tile_rows = NEVER
        assert_company_changes_no_bit(engine.model, use_programs=True)


def assert_company_changes_no_bit(model: Decoder, use_programs: bool) -> None:
    runner = make_runner(model, "float32", use_programs)
    together = decoded(runner, prefilled(runner, LENGTHS), 3)  # one more than programs are made for
    for number, length in enumerate(LENGTHS[:4]):
        runner = make_runner(model, "float32", use_programs)
        sequence = CachedSequence()
        runner.prefill(sequence, prompt(number, length))
        tokens = np.random.default_rng(99).integers(0, VOCAB, (3, len(LENGTHS)))[:, number]
        for step, token_id in enumerate(tokens.tolist()):
            np.testing.assert_array_equal(runner.decode([sequence], [token_id])[0], together[step, number])


def test_a_program_is_made_once_for_each_number_of_sequences(tiny_model: TinyModel) -> None:
    runner = make_runner(load_model(tiny_model("llama-moe")))
    sequences = prefilled(runner, LENGTHS)
    for size in (1, 3, 1, 17, 3):
        runner.decode(sequences[:size], [7] * size)
    assert set(runner._programs) == {1, 3}
    assert 0 < runner.program_bytes < 100_000


def test_a_model_that_computes_beside_the_backend_is_refused_by_the_recorder(
    tiny_model: TinyModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = Mlp.__call__
    monkeypatch.setattr(Mlp, "__call__", lambda self, x, is_decode=False: 2 * honest(self, x))
    model = load_model(tiny_model("llama-dense"))
    runner = make_runner(model)
    (sequence,) = prefilled(runner, [3])
    with pytest.raises(RuntimeError, match="from outside the program"):
        runner.decode([sequence], [1])
    make_runner(model, use_programs=False).decode([CachedSequence()], [1])  # eagerly it may


def test_a_bad_token_is_the_same_error_by_program_and_the_next_step_is_right(tiny_model: TinyModel) -> None:
    model = load_model(tiny_model("llama-moe"))
    runner, eager = make_runner(model), make_runner(model, use_programs=False)
    for each in (runner, eager):
        (sequence,) = prefilled(each, [3])
        each.decode([sequence], [1])
        with pytest.raises(ValueError, match="get_rows: an id is outside the matrix"):
            each.decode([sequence], [100_000])
        sequence.length -= 1
    results = [each.decode(prefilled(each, [4]), [2]).copy() for each in (runner, eager)]
    np.testing.assert_array_equal(*results)


@pytest.mark.parametrize("after_layers", [0, 1, 4])
def test_a_prompt_that_is_left_between_layers_leaves_the_sequence_as_it_was(
    after_layers: int, tiny_model: TinyModel
) -> None:
    runner = make_runner(load_model(tiny_model("qwen3moe")))  # of three layers; a chunk has 64 tokens
    (left,), (other,) = prefilled(runner, [5]), prefilled(runner, [5])
    num_layers = 0

    def before_layer() -> None:
        nonlocal num_layers
        num_layers += 1
        if num_layers > after_layers:
            raise TimeoutError

    with pytest.raises(TimeoutError):
        runner.prefill(left, prompt(0, 100), before_layer)
    assert left.length == 5
    expected = runner.prefill(other, prompt(0, 100)).copy()
    np.testing.assert_array_equal(runner.prefill(left, prompt(0, 100)), expected)


def test_sequences_that_do_not_all_fit_take_nothing(tiny_model: TinyModel) -> None:
    model = load_model(tiny_model("llama-dense"))
    cache = KVCache(model.cache_shapes, 2 * PAGE_SIZE)
    runner = Runner(model, cache, 64, VOCAB)
    sequences = prefilled(runner, [PAGE_SIZE, PAGE_SIZE])
    with pytest.raises(ContextOverflowError):
        runner.decode(sequences, [1, 2])
    assert [sequence.length for sequence in sequences] == [PAGE_SIZE, PAGE_SIZE]
    assert cache.num_free_pages == 0


def test_programs_take_less_memory_than_their_results(tiny_model: TinyModel) -> None:
    """All layers of a model use the same few arrays in turn."""
    few, many = (load_model(tiny_model(name)) for name in ("deepseek2-legacy", "deepseek2-lite"))
    assert len(many.cache_shapes) > 5 * len(few.cache_shapes)
    sizes = []
    for model in (few, many):
        runner = make_runner(model)
        runner.decode(prefilled(runner, [3]), [1])
        sizes.append(runner.program_bytes)
    assert sizes[1] < 2 * sizes[0]
