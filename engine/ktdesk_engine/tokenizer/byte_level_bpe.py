"""Byte-level BPE (`tokenizer.ggml.model` = gpt2): the bytes of a text, written as letters, merged by rank."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from ktdesk_engine.errors import ModelFileError
from ktdesk_engine.tokenizer.pretokenizers import PretokenizerRule
from ktdesk_engine.tokenizer.vocabulary import KEY, MetadataSource, TokenType, Vocabulary, read_strings

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from tokenizers.models import BPE

MAX_WINDOW = 4_000_000
"""Characters cut by the library at once. Its expressions fail after ten million steps back in one match."""
SEAM = re.compile("[A-Za-z](?= [A-Za-z])")
"""After this character every rule cuts, so text may be taken apart there without changing a token."""
SEAM_SEARCH = 65_536


def _byte_letters() -> list[str]:
    """The letter of each byte: itself where Latin-1 can print it, else the next free one from U+0100."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = (chr(0x100 + position) for position in range(256))
    return [chr(byte) if byte in printable else next(others) for byte in range(256)]


BYTE_LETTERS = _byte_letters()
_LETTER_BYTES = {letter: byte for byte, letter in enumerate(BYTE_LETTERS)}


class ByteLevelBPE:
    """Text to ids and back, for text without special tokens."""

    adds_space_prefix = False

    def __init__(self, file: MetadataSource, vocabulary: Vocabulary, rule: PretokenizerRule) -> None:
        self._tokenizer = _library_tokenizer(file, vocabulary, rule)
        self._missing = bytes(byte for byte in range(256) if BYTE_LETTERS[byte] not in vocabulary.ids)

    def encode(self, text: str, *, at_start: bool) -> list[int]:
        """The ids of text. at_start makes no difference to byte-level BPE."""
        ids: list[int] = []
        for window in _windows(self._spellable(text)):
            ids += self._tokenizer.encode(window, add_special_tokens=False).ids
        return ids

    @staticmethod
    def token_bytes(token: str) -> bytes:
        """The bytes that an ordinary token stands for; its own UTF-8 if it is not written in byte letters."""
        try:
            return bytes(map(_LETTER_BYTES.__getitem__, token))
        except KeyError:
            return token.encode()

    def _spellable(self, text: str) -> str:
        """text with U+FFFD for characters that the vocabulary lacks a byte of: some controls, in some files."""
        data = text.encode()
        if len(data.translate(None, self._missing)) == len(data):
            return text
        missing = set(self._missing)
        return "".join("\ufffd" if missing.intersection(char.encode()) else char for char in text)


def _library_tokenizer(file: MetadataSource, vocabulary: Vocabulary, rule: PretokenizerRule) -> Tokenizer:
    from tokenizers import Tokenizer, pre_tokenizers

    tokenizer = Tokenizer(_library_model(file, vocabulary, rule))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [rule.splitter(), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    return tokenizer


def _library_model(file: MetadataSource, vocabulary: Vocabulary, rule: PretokenizerRule) -> BPE:
    from tokenizers.models import BPE

    # The library does not learn of the tokens that text must not turn into.
    spelled = vocabulary.of_types(
        TokenType.NORMAL, TokenType.USER_DEFINED, TokenType.UNUSED, TokenType.BYTE, TokenType.UNDEFINED
    )
    # All is checked before: the library's errors name no merge, and at some of them it aborts.
    merges = dict.fromkeys(read_strings(file, "merges"))  # of a repeated merge the first counts
    pairs = list(_fitting_pairs(file, merges, vocabulary, spelled))
    if 2 * len(pairs) < len(merges):
        raise _foreign_merges(file, merges, pairs)
    return BPE(vocab=spelled, merges=pairs, ignore_merges=rule.ignore_merges)


def _fitting_pairs(
    file: MetadataSource, merges: Iterable[str], vocabulary: Vocabulary, spelled: dict[str, int]
) -> Iterator[tuple[str, str]]:
    """The pairs to merge, the most urgent first, but for those of a control token or of what is no token.

    The latter can never happen. A merge of two tokens to what is no token could, and is refused.
    """
    for merge in merges:
        left, _, right = merge.partition(" ")
        if left in spelled and right in spelled and left + right in spelled:
            yield left, right
        elif not right or (left in spelled and right in spelled and left + right not in vocabulary.ids):
            raise _bad_merge(file, merge)


def _bad_merge(file: MetadataSource, merge: str) -> ModelFileError:
    number = read_strings(file, "merges").index(merge)
    left, _, right = merge.partition(" ")
    problem = f"there is no token {left + right!r}" if right else "it must be two tokens with a space between"
    return ModelFileError(file.path, f"merge {number} of {KEY}merges, {merge!r}, does not fit: {problem}")


def _foreign_merges(file: MetadataSource, merges: Iterable[str], pairs: list[tuple[str, str]]) -> ModelFileError:
    """A few may be left over of a vocabulary that was cut. Of most, text would fall into its bytes."""
    fitting = {f"{left} {right}" for left, right in pairs}
    foreign = [merge for merge in merges if merge not in fitting]
    problem = f"{len(foreign):,} of the {len(foreign) + len(pairs):,} of {KEY}merges are of what is no token"
    reason = "tokens and merges are of different models; take another copy of the model"
    return ModelFileError(file.path, f"{problem}, such as {foreign[0]!r}: {reason}")


def _windows(text: str) -> Iterator[str]:
    """text in parts of at most MAX_WINDOW characters, apart at seams where there is one near the end."""
    start = 0
    while len(text) - start > MAX_WINDOW:
        end = start + MAX_WINDOW
        for seam in SEAM.finditer(text, end - SEAM_SEARCH, end):
            end = seam.end()
        yield text[start:end]
        start = end
    yield text[start:]
