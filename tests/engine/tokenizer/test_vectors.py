"""Ids that another engine gives for the same vocabularies and texts."""

from __future__ import annotations

import pytest
from published_vocabularies import published, ranked_metadata, read_ranks
from shared_data import shared_data
from tokenizer_files import FakeFile

from ktdesk_engine.gguf.file import GGUFFile
from ktdesk_engine.tokenizer.tokenizer import Tokenizer

SEPARATOR = "\n__ggml_vocab_test__\n"


def vectors(name: str) -> list[tuple[str, list[int]]]:
    """(text, its ids without BOS)."""
    base = f"tokenizers/ggml-vocab-{name}.gguf"
    cases = shared_data(f"{base}.inp").read_text("utf-8").split(SEPARATOR)[:-1]
    lines = shared_data(f"{base}.out").read_text("utf-8").split("\n")[:-1]
    assert len(cases) == len(lines) > 40
    return [(text, [int(word) for word in line.split()]) for text, line in zip(cases, lines, strict=True)]


def check(tokenizer: Tokenizer, name: str) -> None:
    for text, ids in vectors(name):
        assert tokenizer.encode(text, add_bos=False) == ids, text
        assert tokenizer.decode(ids) == text


@pytest.mark.parametrize("name", ["gpt-2", "llama-spm", "deepseek-llm", "deepseek-coder", "starcoder"])
def test_every_vector_gives_the_same_ids_and_its_text_back(name: str) -> None:
    with GGUFFile.open(shared_data(f"tokenizers/ggml-vocab-{name}.gguf")) as file:
        check(Tokenizer.from_gguf(file), name)


def test_qwen2_gives_the_ids_of_its_vectors() -> None:
    ranks = read_ranks(published("qwen.tiktoken"))
    check(Tokenizer.from_gguf(FakeFile(ranked_metadata("qwen2", ranks))), "qwen2")
