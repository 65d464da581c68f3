"""Text by llama.cpp's own rules, for tokenizers that ours does not know."""

from __future__ import annotations

from ktdesk_engine.errors import UnsupportedError
from ktdesk_engine.gguf.file import GGUFFile
from ktdesk_engine.llamacpp.library import LlamaModel
from ktdesk_engine.tokenizer.tokenizer import Tokenizer
from ktdesk_engine.tokenizer.vocabulary import KEY, Vocabulary, read_flag, read_vocabulary


class LlamaTextModel:
    """Encodes and spells by a model of which only the vocabulary is loaded. It is never freed while this is used."""

    def __init__(self, model: LlamaModel, vocabulary: Vocabulary, *, adds_space_prefix: bool) -> None:
        self._model = model
        self._ids = vocabulary.ids
        self.adds_space_prefix = adds_space_prefix

    def encode(self, text: str, *, at_start: bool) -> list[int]:
        return self._model.tokenize(text)

    def token_bytes(self, token: str) -> bytes:
        return self._model.piece(self._ids[token])


def tokenizer_of(file: GGUFFile) -> Tokenizer:
    """Ours where it knows the file's, else llama.cpp's."""
    try:
        return Tokenizer.from_gguf(file)
    except UnsupportedError:
        model = LlamaModel(file.shards[0], vocab_only=True)
        vocabulary = read_vocabulary(file)
        is_unigram = file.metadata.get(f"{KEY}model") == "t5"
        adds_space_prefix = read_flag(file, "add_space_prefix", default=is_unigram)
        text_model = LlamaTextModel(model, vocabulary, adds_space_prefix=adds_space_prefix)
        return Tokenizer(vocabulary, text_model, adds_bos=model.adds_bos, adds_eos=model.adds_eos)
