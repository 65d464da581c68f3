"""Vocabularies small enough to check by hand, as the metadata of a file that is not written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from tiny_models import byte_level_alphabet

from ktdesk_engine.tokenizer.tokenizer import Tokenizer

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)
NUM_BYTES = 256


@dataclass(frozen=True)
class FakeFile:
    """As much of a GGUF file as a tokenizer reads."""

    metadata: Mapping[str, Any]
    path: Path = Path("model.gguf")


def byte_level_file(
    merges: Sequence[str] = (), added: Sequence[tuple[str, int]] = (), pre: str | None = "gpt-2", **keys: Any
) -> FakeFile:
    """Ids: the 256 bytes' letters in the order of the bytes, what the merges make, then added (text, type)."""
    tokens = [*byte_level_alphabet(), *(merge.replace(" ", "") for merge in merges)]
    types = [NORMAL] * len(tokens) + [kind for _, kind in added]
    return FakeFile(
        _metadata(
            model="gpt2",
            pre=pre,
            tokens=[*tokens, *(text for text, _ in added)],
            token_type=np.array(types, np.int32),
            merges=list(merges),
            **keys,
        )
    )


def sentencepiece_file(pieces: Mapping[str, float], added: Sequence[tuple[str, int]] = (), **keys: Any) -> FakeFile:
    """Ids: <unk>, <s>, </s>, the 256 bytes, the pieces with their scores, then added (text, type)."""
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(NUM_BYTES)), *pieces]
    types = [UNKNOWN, CONTROL, CONTROL] + [BYTE] * NUM_BYTES + [NORMAL] * len(pieces) + [kind for _, kind in added]
    scores = [0.0] * (3 + NUM_BYTES) + [*pieces.values()] + [0.0] * len(added)
    return FakeFile(
        _metadata(
            model="llama",
            tokens=[*tokens, *(text for text, _ in added)],
            token_type=np.array(types, np.int32),
            scores=np.array(scores, np.float32),
            **keys,
        )
    )


def without(file: FakeFile, name: str) -> FakeFile:
    """file, without the key tokenizer.ggml.NAME."""
    return FakeFile({key: value for key, value in file.metadata.items() if key != f"tokenizer.ggml.{name}"})


def replaced(file: FakeFile, **keys: Any) -> FakeFile:
    """file, with other values for keys below tokenizer.ggml."""
    return FakeFile({**file.metadata, **_metadata(**keys)})


def texts(tokenizer: Tokenizer, ids: Sequence[int]) -> list[str]:
    """The vocabulary's spelling of ids."""
    return [tokenizer.token_text(token_id) for token_id in ids]


def _metadata(**keys: Any) -> dict[str, Any]:
    return {f"tokenizer.ggml.{name}": value for name, value in keys.items() if value is not None}
