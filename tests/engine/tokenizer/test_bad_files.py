"""Vocabularies that contradict themselves: one clear line each."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from tokenizer_files import CONTROL, NORMAL, FakeFile, byte_level_file, replaced, sentencepiece_file, without

from ktdesk_engine.errors import ModelFileError, UnsupportedError
from ktdesk_engine.tokenizer.tokenizer import Tokenizer

GOOD = byte_level_file(["a b", "ab c"], [("<|end|>", CONTROL)])
GOOD_PIECES = sentencepiece_file({"\u2581": -1.0, "a": -2.0})
NUM_TOKENS = 259
MERGES = GOOD.metadata["tokenizer.ggml.merges"]
MERGES_KEY = "tokenizer.ggml.merges"
TOKENS = GOOD.metadata["tokenizer.ggml.tokens"]

BAD: list[tuple[FakeFile, str]] = [
    (without(GOOD, "model"), "tokenizer.ggml.model is missing: an old converter made the file"),
    (replaced(GOOD, model=7), "tokenizer.ggml.model must be a string: 7"),
    (without(GOOD, "pre"), "tokenizer.ggml.pre is missing: an old converter made the file"),
    (without(GOOD, "tokens"), "tokenizer.ggml.tokens is missing"),
    (replaced(GOOD, tokens=[]), "tokenizer.ggml.tokens is empty"),
    (replaced(GOOD, tokens="abc"), "tokenizer.ggml.tokens must be an array of strings: 'abc'"),
    (replaced(GOOD, tokens=np.arange(3)), "tokenizer.ggml.tokens must be an array of strings"),
    (replaced(GOOD, tokens=["a", 1]), "tokenizer.ggml.tokens must hold strings only"),
    (replaced(GOOD, tokens=[*TOKENS[:-1], "ab"]), "tokens 256 and 258 are both 'ab'"),
    (without(GOOD, "merges"), "tokenizer.ggml.merges is missing"),
    (replaced(GOOD, merges=[*MERGES, "c ab"]), f"merge 2 of {MERGES_KEY}, 'c ab', does not fit: there is no token"),
    (replaced(GOOD, merges=[*MERGES, "abc"]), f"merge 2 of {MERGES_KEY}, 'abc', does not fit: it must be two tokens"),
    (replaced(GOOD, merges=["a "]), f"merge 0 of {MERGES_KEY}, 'a ', does not fit: it must be two tokens"),
    (replaced(GOOD, merges=[""]), f"merge 0 of {MERGES_KEY}, '', does not fit: it must be two tokens"),
    (replaced(GOOD, merges=["xy b", "b xy", "a b"]), f"2 of the 3 of {MERGES_KEY} are of what is no token, such as"),
    (replaced(GOOD, merges=["世 界"]), f"1 of the 1 of {MERGES_KEY} are of what is no token, such as '世 界': tokens"),
    (replaced(GOOD, token_type=np.ones(5, np.int32)), "tokenizer.ggml.token_type has 5 values for 259 tokens"),
    (replaced(GOOD, token_type=["x"] * NUM_TOKENS), "tokenizer.ggml.token_type must be an array of numbers"),
    (replaced(GOOD, token_type=np.full(NUM_TOKENS, 9)), "tokenizer.ggml.token_type of token 0 is 9; known are 0..6"),
    (replaced(GOOD, eos_token_id=259), "tokenizer.ggml.eos_token_id is 259, but the tokens are 0..258"),
    (replaced(GOOD, bos_token_id=-2), "tokenizer.ggml.bos_token_id is -2, but the tokens are 0..258"),
    (replaced(GOOD, eot_token_id="x"), "tokenizer.ggml.eot_token_id must be an integer: 'x'"),
    (replaced(GOOD, padding_token_id=True), "tokenizer.ggml.padding_token_id must be an integer: True"),
    (replaced(GOOD, add_bos_token=1), "tokenizer.ggml.add_bos_token must be true or false: 1"),
    (replaced(GOOD, add_bos_token=True), "tokenizer.ggml.add_bos_token is true, but there is no tokenizer.ggml.bos_"),
    (replaced(GOOD, add_eos_token=True), "tokenizer.ggml.add_eos_token is true, but there is no tokenizer.ggml.eos_"),
    (without(GOOD_PIECES, "scores"), "tokenizer.ggml.scores is missing"),
    (replaced(GOOD_PIECES, scores=np.zeros(3)), "tokenizer.ggml.scores has 3 values for 261 tokens"),
    (replaced(GOOD_PIECES, scores=np.r_[np.zeros(260), np.nan]), "tokenizer.ggml.scores of token 260 is not a number"),
    (replaced(GOOD_PIECES, add_space_prefix="yes"), "tokenizer.ggml.add_space_prefix must be true or false: 'yes'"),
    (sentencepiece_file({"a" * 2000: 0.0}), "token 259 has 2,000 characters; at most 1,024 are allowed"),
]  # fmt: skip


@pytest.mark.parametrize(("file", "problem"), BAD, ids=[problem[:60] for _, problem in BAD])
def test_a_file_that_contradicts_itself_is_refused_in_one_line(file: FakeFile, problem: str) -> None:
    with pytest.raises(ModelFileError, match=f"^model.gguf: {re.escape(problem)}") as caught:
        Tokenizer.from_gguf(file)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("kind", ["bert", "t5", "no_vocab"])
def test_another_kind_of_tokenizer_is_named_with_those_that_are_known(kind: str) -> None:
    with pytest.raises(UnsupportedError, match=f"^model.gguf: tokenizer.ggml.model '{kind}' .* known are gpt2 .*llama"):
        Tokenizer.from_gguf(replaced(GOOD, model=kind))


def test_an_unknown_rule_is_named_with_the_file() -> None:
    with pytest.raises(UnsupportedError, match=r"^model\.gguf: tokenizer\.ggml\.pre 'gpt-9' is not supported"):
        Tokenizer.from_gguf(replaced(GOOD, pre="gpt-9"))


@pytest.mark.parametrize("value", [["x"], {"a": 1}, None, 3.5, "x", np.zeros((2, 2)), np.array(["a"])])
@pytest.mark.parametrize("key", sorted(GOOD.metadata | GOOD_PIECES.metadata))
@pytest.mark.parametrize("file", [GOOD, GOOD_PIECES], ids=["byte level", "sentencepiece"])
def test_a_value_of_any_other_kind_is_a_clear_error_or_does_not_matter(file: FakeFile, key: str, value: Any) -> None:
    try:
        Tokenizer.from_gguf(FakeFile({**file.metadata, key: value})).encode("a b")
    except (ModelFileError, UnsupportedError) as error:
        assert re.match(r"model\.gguf: .*tokenizer\.ggml\.", str(error))  # noqa: PT017


def test_a_merge_of_what_is_no_token_can_never_happen_and_is_passed_over() -> None:
    tokenizer = Tokenizer.from_gguf(replaced(GOOD, merges=["xy b", "a xy", *MERGES]))
    assert tokenizer.encode("abc") == [257]


def test_empty_tokens_are_never_made_and_add_nothing() -> None:
    file = byte_level_file(added=[("", NORMAL), ("", CONTROL)])
    tokenizer = Tokenizer.from_gguf(file)
    assert tokenizer.encode("ab", parse_special=True) == list(b"ab")
    assert tokenizer.decode([256, 97, 257]) == "a"


def test_a_file_without_token_types_has_ordinary_tokens_only() -> None:
    tokenizer = Tokenizer.from_gguf(without(GOOD, "token_type"))
    assert tokenizer.encode("<|end|>", parse_special=True) == list(b"<|end|>")
    assert not tokenizer.is_special(258)
