"""Text to token ids and back, by the rules of the model file."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Protocol

from ktdesk_engine.errors import ModelFileError, RequestError, UnsupportedError
from ktdesk_engine.tokenizer.added_tokens import AddedTokens, Span
from ktdesk_engine.tokenizer.byte_level_bpe import ByteLevelBPE
from ktdesk_engine.tokenizer.pretokenizers import rule_for
from ktdesk_engine.tokenizer.sentencepiece_bpe import DEFAULT_IDS, SentencePieceBPE
from ktdesk_engine.tokenizer.stream_decoder import Piece, StreamDecoder
from ktdesk_engine.tokenizer.vocabulary import (
    HIDDEN,
    KEY,
    MetadataSource,
    TokenType,
    Vocabulary,
    read_flag,
    read_vocabulary,
)

END_NAMES = frozenset(
    {
        *("<|endoftext|>", "<|end_of_text|>", "<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<|EOT|>"),
        *("<|end|>", "<|return|>", "<|call|>", "<end_of_turn>", "<end_of_utterance>", "<EOT>", "</s>"),
        *("[EOS]", "[EOT]", "[e~[", "<\uff5cend\u2581of\u2581sentence\uff5c>"),
    }
)
"""Control tokens of these names end an answer in every model that has them, whatever ids the file names."""
HARMONY_NAMES = ("<|return|>", "<|call|>", "<|end|>")
"""Where all three are, the third ends one message of an answer and not the answer."""
_SURROGATE = re.compile("[\ud800-\udfff]")


class TextModel(Protocol):
    """Encodes text that holds no added tokens; spells the bytes of ordinary tokens."""

    adds_space_prefix: bool

    def encode(self, text: str, *, at_start: bool) -> list[int]: ...
    def token_bytes(self, token: str) -> bytes: ...


class Tokenizer:
    """The tokenizer of one model file. Threads may share it."""

    def __init__(self, vocabulary: Vocabulary, model: TextModel, *, adds_bos: bool, adds_eos: bool) -> None:
        self._vocabulary = vocabulary
        self._model = model
        self.adds_bos = adds_bos
        """Whether the file's rule begins a text with BOS."""
        self._adds_eos = adds_eos
        self._added = AddedTokens(vocabulary)
        self._pieces: dict[int, Piece] = {}
        self.end_ids = _end_ids(vocabulary)
        """Tokens that end an answer."""

    @classmethod
    def from_gguf(cls, file: MetadataSource) -> Tokenizer:
        """The tokenizer that the file's `tokenizer.ggml.*` describes."""
        kind = _read_name(file, "model")
        if kind == "gpt2":
            rule = rule_for(_read_name(file, "pre"), file.path)
            vocabulary, adds_bos = read_vocabulary(file), rule.add_bos
            model: TextModel = ByteLevelBPE(file, vocabulary, rule)
        elif kind == "llama":
            vocabulary, adds_bos = read_vocabulary(file, DEFAULT_IDS), True
            model = SentencePieceBPE(file, vocabulary)
        else:
            raise UnsupportedError(
                f"{file.path}: {KEY}model {kind!r} is not supported; known are gpt2 (byte-level BPE) and "
                "llama (SentencePiece BPE)"
            )
        return cls(
            vocabulary,
            model,
            adds_bos=_reads_as_added(file, "bos", vocabulary.bos_id, default=adds_bos),
            adds_eos=_reads_as_added(file, "eos", vocabulary.eos_id, default=False),
        )

    @property
    def vocab_size(self) -> int:
        return len(self._vocabulary.tokens)

    @property
    def bos_id(self) -> int | None:
        return self._vocabulary.bos_id

    @property
    def eos_id(self) -> int | None:
        return self._vocabulary.eos_id

    def encode(
        self,
        text: str,
        *,
        add_bos: bool | None = None,
        parse_special: bool = False,
        literal_spans: Sequence[Span] = (),
    ) -> list[int]:
        """The ids of text.

        add_bos None puts BOS and EOS where the file's rule has them; True and False decide BOS, without EOS.
        A text that begins with a parsed BOS gets no second one. parse_special finds control tokens in text,
        but for those in literal_spans: places, as positions in text, that are to be taken as they are read.
        A lone surrogate, which is no character, is encoded as U+FFFD.
        """
        ids: list[int] = []
        at_start = True
        readable = _SURROGATE.sub("\ufffd", text)
        for part in self._added.split(readable, parse_special=parse_special, literal_spans=literal_spans):
            at_token = isinstance(part, int)
            ids += [part] if isinstance(part, int) else self._model.encode(part, at_start=at_start)
            at_start = at_token
        return self._with_ends(ids, add_bos)

    def decode(self, ids: Iterable[int], *, skip_special: bool = False) -> str:
        """The text of ids. Bytes that are no UTF-8 become U+FFFD; skip_special leaves special tokens out."""
        decoder = self.stream_decoder(skip_special=skip_special)
        return "".join(map(decoder.push, ids)) + decoder.flush()

    def stream_decoder(
        self, *, skip_special: bool = True, at_start: bool = True, shown_ids: frozenset[int] = frozenset()
    ) -> StreamDecoder:
        """A decoder to push ids into. at_start False: they go on where other text ends, so a space stays.
        shown_ids: special tokens that are not skipped."""
        drop_space = at_start and self._model.adds_space_prefix
        return StreamDecoder(self._piece, skip_special=skip_special, at_start=drop_space, shown_ids=shown_ids)

    def special_ids(self, texts: Iterable[str]) -> dict[str, int]:
        """The ids of those texts that are control tokens."""
        control = self._vocabulary.of_types(TokenType.CONTROL)
        return {text: control[text] for text in texts if text in control}

    def token_text(self, token_id: int) -> str:
        """The vocabulary's own spelling."""
        return self._vocabulary.tokens[self._checked(token_id)]

    def token_bytes(self, token_id: int) -> bytes:
        """What the token adds to a text, special tokens spelled out."""
        return self._piece(token_id).data

    def is_special(self, token_id: int) -> bool:
        """Whether the token is no part of the text that a reader sees."""
        return self._piece(token_id).hidden

    def _with_ends(self, ids: list[int], add_bos: bool | None) -> list[int]:
        bos, eos = self.bos_id, self.eos_id
        if (self.adds_bos if add_bos is None else add_bos) and bos is not None and ids[:1] != [bos]:
            ids.insert(0, bos)
        if add_bos is None and self._adds_eos and eos is not None:
            ids.append(eos)
        return ids

    def _piece(self, token_id: int) -> Piece:
        piece = self._pieces.get(token_id)
        if piece is None:
            piece = self._pieces[token_id] = self._make_piece(self._checked(token_id))
        return piece

    def _make_piece(self, token_id: int) -> Piece:
        token, kind = self._vocabulary.tokens[token_id], TokenType(self._vocabulary.types[token_id])
        is_added = kind in (TokenType.CONTROL, TokenType.USER_DEFINED)
        if kind == TokenType.BYTE:
            data = _byte(token)
        elif is_added or kind in HIDDEN:
            data = token.encode()
        else:
            data = self._model.token_bytes(token)
        return Piece(data, hidden=kind in HIDDEN, begins_word=is_added and self._model.adds_space_prefix)

    def _checked(self, token_id: int) -> int:
        if not 0 <= token_id < self.vocab_size:
            raise RequestError(f"token id {token_id} is outside of the vocabulary: 0..{self.vocab_size - 1}")
        return token_id


def _byte(token: str) -> bytes:
    """The byte of `<0x0A>`; the text itself where a token of type byte is not spelled so."""
    match = re.fullmatch("<0x([0-9A-Fa-f]{2})>", token)
    return bytes([int(match[1], 16)]) if match else token.encode()


def _end_ids(vocabulary: Vocabulary) -> frozenset[int]:
    """eos, eot and eom of the file, and the control tokens whose names say that they end an answer.

    A token of such a name that is not a control token is left alone: it may be ordinary text.
    """
    control = vocabulary.of_types(TokenType.CONTROL)
    names = set(END_NAMES)
    if control.keys() >= set(HARMONY_NAMES):
        names.remove(HARMONY_NAMES[-1])
    declared = (vocabulary.eos_id, vocabulary.eot_id, vocabulary.eom_id)
    named = (control[name] for name in names & control.keys())
    return frozenset(token_id for token_id in (*declared, *named) if token_id is not None)


def _read_name(file: MetadataSource, name: str) -> str:
    value = file.metadata.get(KEY + name)
    if value is None:
        hint = "an old converter made the file; convert the model again, or get a newer file"
        raise ModelFileError(file.path, f"{KEY}{name} is missing: {hint}")
    if not isinstance(value, str):
        raise ModelFileError(file.path, f"{KEY}{name} must be a string: {value!r}")
    return value


def _reads_as_added(file: MetadataSource, name: str, token_id: int | None, *, default: bool) -> bool:
    """Whether a text gets the token bos or eos. A file that demands one must also say which."""
    adds = read_flag(file, f"add_{name}_token", default and token_id is not None)
    if adds and token_id is None:
        raise ModelFileError(file.path, f"{KEY}add_{name}_token is true, but there is no {KEY}{name}_token_id")
    return adds
