"""Answers held to a grammar, by llguidance: a JSON schema, a regular expression, or Lark."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from llguidance import LLMatcher, LLTokenizer, TokenizerWrapper

from ktdesk_engine.errors import RequestError, UnsupportedError
from ktdesk_engine.kernels import Floats
from ktdesk_engine.tokenizer.tokenizer import Tokenizer

GrammarKind = Literal["json_schema", "regex", "lark"]
MAX_GRAMMAR_CHARS = 1 << 20
WHITE_SPACE = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}


@dataclass(frozen=True)
class Grammar:
    """What an answer must look like from its first token to its last."""

    kind: GrammarKind
    text: str

    @classmethod
    def json_schema(cls, schema: Mapping[str, Any] | bool) -> Grammar:
        return cls("json_schema", schema_text(schema))

    def __post_init__(self) -> None:
        if len(self.text) > MAX_GRAMMAR_CHARS:
            raise RequestError(f"the grammar has {len(self.text)} characters: at most {MAX_GRAMMAR_CHARS} are read")


def schema_text(schema: Mapping[str, Any] | bool) -> str:
    """A schema for llguidance. White space as Python's json writes it: models that may add more do so without end."""
    if isinstance(schema, bool):
        return json.dumps(schema)
    return json.dumps({"x-guidance": WHITE_SPACE, **schema})


class Guidance:
    """Makes constraints for one model. Its tables take a second for a large vocabulary. Threads may share it."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        if not tokenizer.end_ids:
            raise UnsupportedError("this model has no end token, so no answer of it can be held to a grammar")
        self._tokenizer = LLTokenizer(
            TokenizerWrapper(_Vocabulary(tokenizer)),
            n_vocab=tokenizer.vocab_size,
            eos_token=sorted(tokenizer.end_ids),
        )

    def constraint(self, grammar: Grammar) -> GrammarConstraint:
        """RequestError where the grammar is not understood, or too complex."""
        compiled = _compile(grammar)
        matcher = LLMatcher(self._tokenizer, compiled, log_level=0)
        if matcher.is_error():
            raise RequestError(f"the {_shown(grammar)} cannot be used: {_first_line(matcher.get_error())}")
        return GrammarConstraint(matcher)


class GrammarConstraint:
    """One answer on its way through a grammar."""

    def __init__(self, matcher: LLMatcher) -> None:
        self._matcher = matcher

    def allowed(self, logits: Floats) -> Floats:
        bits = np.frombuffer(self._matcher.compute_bitmask(), np.uint8)
        mask = np.unpackbits(bits, count=len(logits), bitorder="little").astype(bool)
        self._check()
        return np.where(mask, logits, np.float32(-np.inf))

    def accept(self, token_id: int) -> None:
        self._matcher.consume_token(token_id)
        self._check()

    def _check(self) -> None:
        if self._matcher.is_error():
            raise RequestError(f"the answer left its grammar: {_first_line(self._matcher.get_error())}")


class _Vocabulary:
    """A tokenizer as llguidance wants to see it."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        ids = range(tokenizer.vocab_size)
        self._tokenizer = tokenizer
        self.eos_token_id = min(tokenizer.end_ids)
        self.bos_token_id = tokenizer.bos_id
        self.tokens = [tokenizer.token_bytes(token_id) for token_id in ids]
        self.special_token_ids = [token_id for token_id in ids if tokenizer.is_special(token_id)]

    def __call__(self, text: str) -> list[int]:
        return self._tokenizer.encode(text, add_bos=False)


def _compile(grammar: Grammar) -> str:
    """In llguidance's own form."""
    try:
        if grammar.kind == "json_schema":
            return LLMatcher.grammar_from_json_schema(grammar.text)
        if grammar.kind == "regex":
            return LLMatcher.grammar_from_regex(grammar.text)
        return LLMatcher.grammar_from_lark(grammar.text)
    except ValueError as error:
        raise RequestError(f"the {_shown(grammar)} cannot be used: {_first_line(str(error))}") from error


def _shown(grammar: Grammar) -> str:
    return {"json_schema": "JSON schema", "regex": "regular expression", "lark": "grammar"}[grammar.kind]


def _first_line(text: str) -> str:
    return next(iter(text.splitlines()), "")[:300]
