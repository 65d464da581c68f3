"""Ids that another engine gives for the same vocabularies and texts."""

from __future__ import annotations

import base64
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from shared_data import shared_data
from tokenizer_files import FakeFile

from ktdesk_engine.gguf.file import GGUFFile
from ktdesk_engine.tokenizer.byte_level_bpe import BYTE_LETTERS
from ktdesk_engine.tokenizer.tokenizer import Tokenizer

QWEN_VARIABLE = "KTDESK_QWEN_TIKTOKEN"
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
    path = os.environ.get(QWEN_VARIABLE)
    if not path:
        pytest.skip(f"{QWEN_VARIABLE} does not name qwen.tiktoken, which the package dashscope has in its wheel")
    check(Tokenizer.from_gguf(FakeFile(qwen2_metadata(Path(path)))), "qwen2")


def qwen2_metadata(path: Path) -> dict[str, Any]:
    """What a converter makes of ranked byte strings, one `base64 rank` a line."""
    ranks = {base64.b64decode(word): int(rank) for word, rank in map(str.split, path.read_text().splitlines())}
    by_rank = sorted(ranks, key=ranks.__getitem__)
    assert [ranks[token] for token in by_rank] == list(range(len(ranks)))
    merges = [" ".join(map(spelled, last_pair(token, ranks))) for token in by_rank if len(token) > 1]
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "qwen2",
        "tokenizer.ggml.tokens": [spelled(token) for token in by_rank],
        "tokenizer.ggml.merges": merges,
    }


def last_pair(token: bytes, ranks: Mapping[bytes, int]) -> list[bytes]:
    """The two tokens of which token is made, by merging its bytes by rank."""
    parts = [token[i : i + 1] for i in range(len(token))]
    while len(parts) > 2:
        at = min(range(len(parts) - 1), key=lambda i: ranks.get(parts[i] + parts[i + 1], len(ranks)))
        parts[at : at + 2] = [parts[at] + parts[at + 1]]
    return parts


def spelled(token: bytes) -> str:
    return "".join(BYTE_LETTERS[byte] for byte in token)
