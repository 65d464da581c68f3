"""Ids to text, one by one."""

from __future__ import annotations

from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizer_files import CONTROL, NUM_BYTES, USER_DEFINED, byte_level_file, sentencepiece_file

from ktdesk_engine.tokenizer.tokenizer import Tokenizer

ADDED = [("<|end|>", CONTROL), ("<think>é", USER_DEFINED)]
BYTE_LEVEL = Tokenizer.from_gguf(byte_level_file(["ã ģ", "ãģ Ĥ", "Ġ a", "Ł ¦", "ð Ł"], ADDED))
PIECES = {"\u2581": -3.0, "\u2581\u2581": -2.0, "a": -3.0, "\u2581a": -1.0, "あ": -3.0}
SENTENCEPIECE = Tokenizer.from_gguf(sentencepiece_file(PIECES, ADDED))
UNPREFIXED = Tokenizer.from_gguf(sentencepiece_file(PIECES, ADDED, add_space_prefix=False))
FIRST_BYTE = 3  # id of <0x00> in the SentencePiece vocabularies
SPACE_A = FIRST_BYTE + NUM_BYTES + 3


@cache
def beginnings() -> frozenset[bytes]:
    """Every beginning of the UTF-8 of every character, the whole excluded."""
    points = [*range(0x80, 0xD800), *range(0xE000, 0x110000, 64)]  # 64 characters share all bytes but the last
    return frozenset(chr(point).encode()[:end] for point in points for end in range(1, len(chr(point).encode())))


def readable(data: bytes) -> str:
    """The text of data without the bytes at its end that may still become a character."""
    ends = (len(data) - length for length in (3, 2, 1) if length <= len(data))
    end = next((end for end in ends if data[end:] in beginnings()), len(data))
    return data[:end].decode("utf-8", "replace")


def pushed(tokenizer: Tokenizer, ids: list[int]) -> list[str]:
    decoder = tokenizer.stream_decoder()
    return [*map(decoder.push, ids), decoder.flush()]


def test_a_character_comes_with_its_last_byte() -> None:
    assert pushed(BYTE_LEVEL, list("aé🦙".encode())) == ["a", "", "é", "", "", "", "🦙", ""]


def test_byte_tokens_of_sentencepiece_join_to_characters() -> None:
    ids = [FIRST_BYTE + byte for byte in b"\xe3\x81\x82"]
    assert pushed(SENTENCEPIECE, ids) == ["", "", "あ", ""]


def test_bytes_that_cannot_become_a_character_do_not_wait() -> None:
    assert pushed(BYTE_LEVEL, [0x80, 0xFF, 0x61]) == ["\ufffd", "\ufffd", "a", ""]
    assert pushed(BYTE_LEVEL, [0xE0, 0x80]) == ["", "\ufffd\ufffd", ""]  # E0 is never followed by 80
    assert pushed(BYTE_LEVEL, [0xED, 0xA0]) == ["", "\ufffd\ufffd", ""]  # half a surrogate
    assert pushed(BYTE_LEVEL, [0xE3, 0x81, 0x61]) == ["", "", "\ufffda", ""]


def test_a_character_that_is_never_completed_comes_at_the_end() -> None:
    assert pushed(BYTE_LEVEL, [0x61, 0xF0, 0x9F]) == ["a", "", "", "\ufffd"]


def test_a_control_token_is_left_out_of_a_stream_and_a_user_defined_one_is_not() -> None:
    ids = [0x61, NUM_BYTES + 5, NUM_BYTES + 6, 0x62]
    assert pushed(BYTE_LEVEL, ids) == ["a", "", "<think>é", "b", ""]


def test_the_space_that_encoding_put_before_the_first_word_is_dropped() -> None:
    assert pushed(SENTENCEPIECE, [SPACE_A, SPACE_A]) == ["a", " a", ""]
    assert pushed(UNPREFIXED, [SPACE_A, SPACE_A]) == [" a", " a", ""]


def test_a_stream_that_goes_on_from_other_text_keeps_its_space() -> None:
    assert SENTENCEPIECE.stream_decoder(at_start=False).push(SPACE_A) == " a"


@pytest.mark.parametrize("tokenizer", [BYTE_LEVEL, SENTENCEPIECE, UNPREFIXED])
@settings(deadline=None)
@given(data=st.data())
def test_a_stream_is_whole_characters_as_early_as_can_be_and_joined_the_decoded_text(
    tokenizer: Tokenizer, data: st.DataObject
) -> None:
    ids = data.draw(st.lists(st.integers(0, tokenizer.vocab_size - 1), max_size=30))
    skip_special = data.draw(st.booleans())
    decoder = tokenizer.stream_decoder(skip_special=skip_special)
    seen, so_far = b"", ""
    drop_space = tokenizer is SENTENCEPIECE
    for token_id in ids:
        spelled = b"" if skip_special and tokenizer.is_special(token_id) else tokenizer.token_bytes(token_id)
        is_added = token_id >= tokenizer.vocab_size - 2 or (tokenizer is not BYTE_LEVEL and token_id in (1, 2))
        if drop_space and spelled and not is_added:
            spelled, drop_space = spelled.removeprefix(b" "), False
        drop_space = drop_space or (is_added and tokenizer is SENTENCEPIECE)
        seen += spelled
        so_far += decoder.push(token_id)
        assert so_far == readable(seen)
    assert so_far + decoder.flush() == seen.decode("utf-8", "replace")
    assert tokenizer.decode(ids, skip_special=skip_special) == seen.decode("utf-8", "replace")
