"""Tokens with a task: control and user-defined ones, BOS, EOS, and those that end an answer."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizer_files import (
    CONTROL,
    NORMAL,
    NUM_BYTES,
    UNKNOWN,
    UNUSED,
    USER_DEFINED,
    byte_level_file,
    replaced,
    sentencepiece_file,
    texts,
)

from ktdesk_engine.errors import RequestError
from ktdesk_engine.tokenizer.tokenizer import Tokenizer

ADDED = [("<|im_end|>", CONTROL), ("<think>", USER_DEFINED), ("<think>!", USER_DEFINED), ("[unused]", UNUSED)]
IM_END, THINK, THINK_LOUD, UNUSED_ID = range(NUM_BYTES, NUM_BYTES + 4)


@pytest.fixture(name="tokenizer")
def _tokenizer() -> Tokenizer:
    return Tokenizer.from_gguf(byte_level_file(added=ADDED))


def test_a_control_token_in_text_is_text_unless_special_tokens_are_parsed(tokenizer: Tokenizer) -> None:
    assert tokenizer.encode("a<|im_end|>") == list(b"a<|im_end|>")
    assert tokenizer.encode("a<|im_end|>", parse_special=True) == [*b"a", IM_END]


@pytest.mark.parametrize("parse_special", [False, True])
def test_a_user_defined_token_is_always_found(tokenizer: Tokenizer, parse_special: bool) -> None:
    assert tokenizer.encode("a<think>b", parse_special=parse_special) == [*b"a", THINK, *b"b"]


def test_the_longest_added_token_is_found(tokenizer: Tokenizer) -> None:
    assert tokenizer.encode("<think>!<think>?") == [THINK_LOUD, THINK, *b"?"]


@settings(deadline=None)
@given(
    st.lists(st.text("ab", min_size=1, max_size=4), min_size=1, max_size=40, unique=True), st.text("ab", max_size=20)
)
def test_added_tokens_are_taken_from_the_left_the_longest_first(tokens: list[str], text: str) -> None:
    merges = Tokenizer.from_gguf(byte_level_file(added=[(f"~{token}", CONTROL) for token in tokens]))
    expected, rest = [], "".join(f"~{char}" for char in text)
    while rest:
        fitting = [i for i, token in enumerate(tokens) if rest.startswith(f"~{token}")]
        best = max(fitting, key=lambda i: len(tokens[i]), default=None)
        expected.append(ord(rest[0]) if best is None else NUM_BYTES + best)
        rest = rest[1 if best is None else len(tokens[best]) + 1 :]
    assert merges.encode("".join(f"~{char}" for char in text), parse_special=True) == expected


def test_no_token_is_found_that_touches_a_literal_span(tokenizer: Tokenizer) -> None:
    text = "<|im_end|>x<|im_end|><|im_end|>"
    ids = tokenizer.encode(text, parse_special=True, literal_spans=[(11, 21)])
    assert ids == [IM_END, *b"x<|im_end|>", IM_END]
    assert tokenizer.encode(text, parse_special=True, literal_spans=[(0, 3), (20, 30)]) == list(text.encode())


def test_literal_spans_may_come_in_any_order_and_overlap(tokenizer: Tokenizer) -> None:
    spans = [(10, 20), (0, 12), (0, 10)]
    assert tokenizer.encode("<|im_end|>" * 3, parse_special=True, literal_spans=spans) == [
        *b"<|im_end|><|im_end|>",
        IM_END,
    ]


def test_text_around_a_literal_span_is_merged_as_one() -> None:
    tokenizer = Tokenizer.from_gguf(byte_level_file(["a b", "ab c"]))
    assert texts(tokenizer, tokenizer.encode("abc", parse_special=True, literal_spans=[(1, 2)])) == ["abc"]


def test_merges_never_make_a_control_token() -> None:
    file = byte_level_file(["E O", "EO T"])
    types = file.metadata["tokenizer.ggml.token_type"].copy()
    types[-1] = CONTROL
    tokenizer = Tokenizer.from_gguf(replaced(file, token_type=types))
    assert texts(tokenizer, tokenizer.encode("EOT")) == ["EO", "T"]
    assert texts(tokenizer, tokenizer.encode("EOT", parse_special=True)) == ["EOT"]


def test_a_whole_piece_never_becomes_a_control_token() -> None:
    tokenizer = Tokenizer.from_gguf(byte_level_file(added=[("PAD", CONTROL)], pre="llama-bpe"))
    assert tokenizer.encode("PAD", add_bos=False) == list(b"PAD")


def test_pieces_of_sentencepiece_never_make_a_control_or_byte_token() -> None:
    pieces = {"\u2581": -9.0, "<": -9.0, "/": -9.0, "s": -9.0, ">": -9.0, "</": -1.0, "</s": -2.0, "<0x0A": -3.0}
    tokenizer = Tokenizer.from_gguf(sentencepiece_file(pieces, add_space_prefix=False))
    assert texts(tokenizer, tokenizer.encode("</s>", add_bos=False)) == ["</s", ">"]


def test_skip_special_leaves_out_control_unknown_and_unused_tokens(tokenizer: Tokenizer) -> None:
    ids = [*b"a", IM_END, UNUSED_ID, THINK, *b"b"]
    assert tokenizer.decode(ids) == "a<|im_end|>[unused]<think>b"
    assert tokenizer.decode(ids, skip_special=True) == "a<think>b"
    assert [tokenizer.is_special(i) for i in (IM_END, UNUSED_ID, THINK, 97)] == [True, True, False, False]
    unknown = Tokenizer.from_gguf(byte_level_file(added=[("<unk>", UNKNOWN)]))
    assert unknown.decode([NUM_BYTES], skip_special=True) == ""


def test_an_unknown_token_is_never_found_in_text() -> None:
    tokenizer = Tokenizer.from_gguf(byte_level_file(added=[("<unk>", UNKNOWN)]))
    assert tokenizer.encode("<unk>", parse_special=True) == list(b"<unk>")


def test_a_token_has_its_spelling_and_its_bytes() -> None:
    tokenizer = Tokenizer.from_gguf(byte_level_file(["Ġ a"], added=[("Ġtag", CONTROL), ("世", NORMAL)]))
    spellings = [(tokenizer.token_text(i), tokenizer.token_bytes(i)) for i in range(NUM_BYTES, NUM_BYTES + 3)]
    assert spellings == [("Ġa", b" a"), ("Ġtag", "Ġtag".encode()), ("世", "世".encode())]
    sentencepiece = Tokenizer.from_gguf(sentencepiece_file({"\u2581a": 0.0}))
    assert [sentencepiece.token_bytes(i) for i in (1, 3 + 0xE3, 259)] == [b"<s>", b"\xe3", b" a"]


@pytest.mark.parametrize("token_id", [-1, NUM_BYTES + 4])
def test_an_id_outside_of_the_vocabulary_is_refused(tokenizer: Tokenizer, token_id: int) -> None:
    for use in (tokenizer.token_bytes, tokenizer.token_text, tokenizer.is_special, tokenizer.stream_decoder().push):
        with pytest.raises(RequestError, match=rf"^token id {token_id} is outside of the vocabulary: 0\.\.259$"):
            use(token_id)


# BOS and EOS

BOS, EOS = NUM_BYTES, NUM_BYTES + 1
ENDS = [("<s>", CONTROL), ("</s>", CONTROL)]


def ends_of(pre: str = "gpt-2", **keys: Any) -> list[int]:
    file = byte_level_file(added=ENDS, pre=pre, bos_token_id=BOS, eos_token_id=EOS, **keys)
    return Tokenizer.from_gguf(file).encode("x")


def test_the_file_says_which_ends_a_text_gets() -> None:
    assert ends_of() == [*b"x"]
    assert ends_of(add_bos_token=True) == [BOS, *b"x"]
    assert ends_of(add_bos_token=True, add_eos_token=True) == [BOS, *b"x", EOS]


def test_llama_3_and_sentencepiece_files_begin_with_bos_unless_they_say_otherwise() -> None:
    assert ends_of("llama-bpe") == [BOS, *b"x"]
    assert ends_of("llama-bpe", add_bos_token=False) == [*b"x"]
    pieces = {"\u2581": -1.0, "x": -1.0}
    assert Tokenizer.from_gguf(sentencepiece_file(pieces)).encode("x")[0] == 1
    assert Tokenizer.from_gguf(sentencepiece_file(pieces, add_bos_token=False)).encode("x")[0] != 1


def test_a_caller_decides_bos_and_then_gets_no_eos() -> None:
    tokenizer = Tokenizer.from_gguf(
        byte_level_file(added=ENDS, bos_token_id=BOS, eos_token_id=EOS, add_bos_token=True, add_eos_token=True)
    )
    assert tokenizer.encode("x", add_bos=False) == [*b"x"]
    assert tokenizer.encode("x", add_bos=True) == [BOS, *b"x"]


def test_a_text_that_begins_with_bos_gets_no_second_one() -> None:
    tokenizer = Tokenizer.from_gguf(byte_level_file(added=ENDS, bos_token_id=BOS, add_bos_token=True))
    assert tokenizer.encode("<s>x", parse_special=True) == [BOS, *b"x"]
    assert tokenizer.encode("<s>x") == [BOS, *b"<s>x"]


def test_a_sentencepiece_file_that_names_no_ids_has_the_usual_ones() -> None:
    tokenizer = Tokenizer.from_gguf(sentencepiece_file({"\u2581": -1.0}))
    assert (tokenizer.bos_id, tokenizer.eos_id, tokenizer.end_ids) == (1, 2, {2})


def test_an_id_of_minus_one_means_none() -> None:
    tokenizer = Tokenizer.from_gguf(byte_level_file(added=ENDS, bos_token_id=2**32 - 1, eos_token_id=EOS))
    assert (tokenizer.bos_id, tokenizer.eos_id) == (None, EOS)


# Ends of an answer


def end_texts(added: list[tuple[str, int]], **keys: int) -> list[str]:
    tokenizer = Tokenizer.from_gguf(byte_level_file(added=added, **keys))
    return sorted(map(tokenizer.token_text, tokenizer.end_ids))


def test_eos_eot_and_eom_of_the_file_end_an_answer_whatever_their_type() -> None:
    added = [("<a>", NORMAL), ("<b>", USER_DEFINED), ("<c>", CONTROL)]
    ids = {"eos_token_id": 256, "eot_token_id": 257, "eom_token_id": 258}
    assert end_texts(added, **ids) == ["<a>", "<b>", "<c>"]


def test_control_tokens_with_a_known_name_end_an_answer_too() -> None:
    added = [("<|im_end|>", CONTROL), ("<|endoftext|>", CONTROL), ("<|im_start|>", CONTROL), ("<|eot_id|>", NORMAL)]
    assert end_texts(added, eos_token_id=257) == ["<|endoftext|>", "<|im_end|>"]


def test_a_token_that_ends_a_message_ends_no_answer_where_return_and_call_do() -> None:
    harmony = [("<|return|>", CONTROL), ("<|call|>", CONTROL), ("<|end|>", CONTROL)]
    assert end_texts(harmony) == ["<|call|>", "<|return|>"]
    assert end_texts(harmony[2:]) == ["<|end|>"]
