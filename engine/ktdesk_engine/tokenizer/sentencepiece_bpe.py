"""SentencePiece BPE (`tokenizer.ggml.model` = llama): characters merged by the score of the token they make.

SentencePiece joins, again and again, the two neighbours that make the token of the highest score, the
leftmost where scores are equal. The `tokenizers` library merges listed pairs by rank instead, so the pairs are
listed here: every way to cut a token in two tokens, by the score of the whole. A character without a token
becomes its bytes. Where different tokens have equal scores the one of the lower id goes first: a rank cannot say
"leftmost". The spaces of the Llama 2 vocabulary are such tokens, and come out the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from ktdesk_engine.errors import ModelFileError
from ktdesk_engine.tokenizer.vocabulary import KEY, MetadataSource, TokenType, Vocabulary, read_flag, read_numbers

if TYPE_CHECKING:
    from tokenizers import Tokenizer

SPACE = "\u2581"
MAX_TOKEN_LENGTH = 1024
"""Characters. Real tokens have at most a few dozen; listing the cuts of a token takes the square of its length."""
DEFAULT_IDS = {"unknown": 0, "bos": 1, "eos": 2}
"""What the ids are where a SentencePiece file does not name them."""


class SentencePieceBPE:
    """Text to ids and back, for text without special tokens."""

    def __init__(self, file: MetadataSource, vocabulary: Vocabulary) -> None:
        self.adds_space_prefix = read_flag(file, "add_space_prefix", True)
        _check_lengths(vocabulary)
        self._tokenizer = _library_tokenizer(vocabulary, _read_scores(file, vocabulary))

    def encode(self, text: str, *, at_start: bool) -> list[int]:
        """The ids of text. at_start: nothing or an added token comes before it, so that it begins a word."""
        prefix = SPACE if at_start and self.adds_space_prefix else ""
        escaped = prefix + text.replace(" ", SPACE)
        ids: list[int] = self._tokenizer.encode(escaped, add_special_tokens=False).ids
        return ids

    @staticmethod
    def token_bytes(token: str) -> bytes:
        """The bytes that an ordinary token stands for."""
        return token.replace(SPACE, " ").encode()


def _check_lengths(vocabulary: Vocabulary) -> None:
    longest = max(range(len(vocabulary.tokens)), key=lambda token_id: len(vocabulary.tokens[token_id]))
    length = len(vocabulary.tokens[longest])
    if length > MAX_TOKEN_LENGTH:
        raise ModelFileError(
            vocabulary.path, f"token {longest} has {length:,} characters; at most {MAX_TOKEN_LENGTH:,} are allowed"
        )


def _read_scores(file: MetadataSource, vocabulary: Vocabulary) -> list[float]:
    scores = read_numbers(file, "scores", len(vocabulary.tokens))
    if scores is None:
        raise ModelFileError(file.path, f"{KEY}scores is missing; SentencePiece cannot merge without scores")
    if np.isnan(scores.astype(np.float64)).any():
        token_id = int(np.isnan(scores).argmax())
        raise ModelFileError(file.path, f"{KEY}scores of token {token_id} is not a number")
    return [float(score) for score in scores.tolist()]


def _library_tokenizer(vocabulary: Vocabulary, scores: list[float]) -> Tokenizer:
    from tokenizers import Tokenizer, models

    # The library falls back on the byte tokens, but no text may merge into one, nor into a control token.
    merged = vocabulary.of_types(TokenType.NORMAL, TokenType.USER_DEFINED, TokenType.UNUSED, TokenType.UNDEFINED)
    spelled = merged | vocabulary.of_types(TokenType.BYTE)
    unknown = None if vocabulary.unknown_id is None else vocabulary.tokens[vocabulary.unknown_id] or None
    if unknown is not None:
        spelled[unknown] = vocabulary.ids[unknown]
    model = models.BPE(
        vocab=spelled,
        merges=list(_merges(merged, scores)),
        unk_token=unknown,
        byte_fallback=True,
    )
    return Tokenizer(model)


def _merges(tokens: dict[str, int], scores: list[float]) -> Iterator[tuple[str, str]]:
    """Every pair of tokens that makes a token, in the order in which SentencePiece would prefer them."""
    for token, _ in sorted(tokens.items(), key=lambda item: (-scores[item[1]], item[1])):
        cuts = [cut for cut in range(1, len(token)) if token[:cut] in tokens and token[cut:] in tokens]
        for cut in sorted(cuts, key=lambda cut: _preference(token, cut)):
            yield token[:cut], token[cut:]


def _preference(token: str, cut: int) -> tuple[bool, int]:
    """Sorts cuts of one token so that the leftmost of two that overlap in a text comes first.

    Three neighbours x, y, z with xy = yz = token: x and y must win. Then y is both an end and a beginning of
    token, which is what is tested.
    """
    rest = token[cut:]
    return not token.startswith(rest), cut
