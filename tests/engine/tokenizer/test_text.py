"""Any text: there and back, in linear time."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizer_files import NUM_BYTES, USER_DEFINED, byte_level_file, sentencepiece_file, texts

from ktdesk_engine.tokenizer import byte_level_bpe
from ktdesk_engine.tokenizer.pretokenizers import RULES
from ktdesk_engine.tokenizer.tokenizer import Tokenizer

DISTINCT_RULES = sorted({rule: name for name, rule in RULES.items()}.values())
MERGES = ["h e", "l l", "he ll", "hell o", "Ġ w", "o r", "Ġ Ġ", "ĠĠ ĠĠ", "a a", "aa aa", "A A", "Ã ©", "Ċ Ċ", "1 2"]
SCORED = ["\u2581\u2581", "ab", "\u2581a", "ba", "aba", "bab", "aa", "==", "\u2581ab", "aaa", "====", "\u2581a=", "é="]
CHARACTERS = ["\u2581", "a", "b", "=", "é"]
PIECES = {piece: -float(rank) for rank, piece in enumerate([*SCORED, *CHARACTERS])}
BYTE_LEVEL = Tokenizer.from_gguf(byte_level_file(MERGES))
SENTENCEPIECE = Tokenizer.from_gguf(sentencepiece_file(PIECES, add_bos_token=False))
TRICKY = "  🦙😶\u200d🌫️ \u200fשלם עלם\u200e مرحبا 漢字かな한글 e\u0301 \x00\x7f\u2028\r\n\t 𝄞\U0010ffff"


@settings(deadline=None)
@given(st.text())
@example(TRICKY)
@example("")
@example(" ")
def test_bytes_come_back_as_they_were(text: str) -> None:
    assert BYTE_LEVEL.decode(BYTE_LEVEL.encode(text)) == text


@settings(deadline=None)
@given(st.text().filter(lambda text: "\u2581" not in text))
@example(TRICKY)
@example("  leading")
@example("")
def test_pieces_come_back_as_they_were(text: str) -> None:
    assert SENTENCEPIECE.decode(SENTENCEPIECE.encode(text)) == text


@settings(deadline=None)
@given(st.lists(st.sampled_from(["<tool>", "a", " a", "  ", "é", "あ"]), max_size=12))
def test_pieces_around_added_tokens_come_back_as_they_were(parts: list[str]) -> None:
    tokenizer = Tokenizer.from_gguf(sentencepiece_file(PIECES, [("<tool>", USER_DEFINED)], add_bos_token=False))
    assert tokenizer.decode(tokenizer.encode("".join(parts))) == "".join(parts)


def test_a_lone_surrogate_is_encoded_as_the_replacement_character() -> None:
    assert BYTE_LEVEL.decode(BYTE_LEVEL.encode("a\ud800b\udfff")) == "a\ufffdb\ufffd"


def test_a_character_that_the_vocabulary_has_no_bytes_for_becomes_the_replacement_character() -> None:
    file = byte_level_file()
    tokens = [token if i != 4 else "" for i, token in enumerate(file.metadata["tokenizer.ggml.tokens"])]
    tokenizer = Tokenizer.from_gguf(type(file)({**file.metadata, "tokenizer.ggml.tokens": tokens}))
    assert tokenizer.decode(tokenizer.encode("a\x04b")) == "a\ufffdb"


def test_merges_are_made_by_rank_and_repeated_ones_count_once() -> None:
    tokenizer = Tokenizer.from_gguf(byte_level_file(["b c", "a b", "ab c"]))
    assert texts(tokenizer, tokenizer.encode("abc")) == ["a", "bc"]
    again = byte_level_file(["b c", "a b", "ab c"]).metadata
    repeated = {**again, "tokenizer.ggml.merges": [*again["tokenizer.ggml.merges"], "b c"]}
    tokenizer = Tokenizer.from_gguf(type(byte_level_file())(repeated))
    assert texts(tokenizer, tokenizer.encode("abc")) == ["a", "bc"]


def test_a_piece_that_is_a_token_is_not_merged_where_the_rule_says_so() -> None:
    merges = ["b c", "a b", "ab c"]
    assert Tokenizer.from_gguf(byte_level_file(merges, pre="llama-bpe")).encode("abc") == [NUM_BYTES + 2]
    assert Tokenizer.from_gguf(byte_level_file(merges, pre="qwen2")).encode("abc") == [97, NUM_BYTES]


def sentencepiece_by_definition(text: str) -> list[str]:
    """Join the best-scored neighbours, the leftmost of equals, until there are none; the rest is bytes."""
    parts = list("\u2581" + text.replace(" ", "\u2581")) if text else []
    while True:
        scores = [PIECES.get(left + right, -99.0) for left, right in pairwise(parts)]
        if max(scores, default=-99.0) == -99.0:
            break
        at = scores.index(max(scores))
        parts[at : at + 2] = [parts[at] + parts[at + 1]]
    return [
        piece
        for part in parts
        for piece in ([part] if part in PIECES else [f"<0x{byte:02X}>" for byte in part.encode()])
    ]


@settings(deadline=None)
@given(st.text("ab= éü", max_size=40))
@example("ababab a= aaaaaaa ====== é=")
def test_pieces_are_joined_as_sentencepiece_defines_it(text: str) -> None:
    assert texts(SENTENCEPIECE, SENTENCEPIECE.encode(text)) == sentencepiece_by_definition(text)


def test_a_space_is_put_before_text_at_the_start_and_after_added_tokens() -> None:
    file = sentencepiece_file(PIECES, [("<tool>", USER_DEFINED)], add_bos_token=False)
    tokenizer = Tokenizer.from_gguf(file)
    assert texts(tokenizer, tokenizer.encode("a<tool>b")) == ["\u2581a", "<tool>", "\u2581", "b"]
    assert tokenizer.encode("") == []
    assert texts(tokenizer, tokenizer.encode("<tool>")) == ["<tool>"]


# Long texts


def long_texts(length: int) -> dict[str, str]:
    random.seed(7)
    return {
        "one word": "a" * length,
        "capitals": "A" * (length - 1) + "a",
        "spaces": " " * (length - 1) + "x",
        "line breaks": "\n" * length,
        "punctuation": "!?" * (length // 2),
        "Han": "".join(chr(random.randint(0x4E00, 0x9FA5)) for _ in range(length)),
        "random bytes": random.randbytes(length).decode("latin-1"),
    }


def grows_with_the_square(tokenizer: Tokenizer, kind: str, length: int) -> bool:
    """Whether eight times the text takes far more than eight times as long, each time that it is tried.

    Of processor time, so that a busy machine does not matter; with the square it were 64 times.
    """
    short, long = (long_texts(size)[kind] for size in (length // 8, length))
    return all(cpu_seconds(tokenizer, long) > 20 * cpu_seconds(tokenizer, short) for _ in range(4))


def cpu_seconds(tokenizer: Tokenizer, text: str) -> float:
    start = time.process_time()
    tokenizer.encode(text)
    return time.process_time() - start


@pytest.mark.parametrize("name", DISTINCT_RULES)
def test_no_rule_needs_more_than_linear_time(name: str) -> None:
    tokenizer = Tokenizer.from_gguf(byte_level_file(MERGES, pre=name))
    for kind in long_texts(8):
        assert not grows_with_the_square(tokenizer, kind, 100_000), kind


@pytest.mark.parametrize("tokenizer", [BYTE_LEVEL, SENTENCEPIECE], ids=["gpt-2", "sentencepiece"])
@pytest.mark.parametrize("kind", ["one word", "spaces", "random bytes"])
def test_a_megabyte_of_anything_comes_back_in_linear_time(tokenizer: Tokenizer, kind: str) -> None:
    text = long_texts(1_000_000)[kind]
    assert tokenizer.decode(tokenizer.encode(text)) == text
    assert not grows_with_the_square(tokenizer, kind, len(text))


@pytest.mark.parametrize("name", DISTINCT_RULES)
def test_long_texts_come_back(name: str) -> None:
    tokenizer = Tokenizer.from_gguf(byte_level_file(MERGES, pre=name))
    for kind, text in long_texts(100_000).items():
        assert tokenizer.decode(tokenizer.encode(text)) == text, kind


@pytest.mark.parametrize("name", DISTINCT_RULES)
def test_a_text_taken_apart_at_seams_gives_the_same_tokens(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    random.seed(3)
    words = [
        "hello",
        " world",
        "'s",
        " a",
        "a",
        " 123",
        "\n\n",
        "  ",
        "!?",
        " x",
        "漢字",
        "DON'T",
        " Get",
        "Name",
        "e\u0301",
    ]
    text = "".join(random.choices(words, k=400))
    tokenizer = Tokenizer.from_gguf(byte_level_file(MERGES, pre=name))
    whole = tokenizer.encode(text)
    monkeypatch.setattr(byte_level_bpe, "MAX_WINDOW", 200)
    monkeypatch.setattr(byte_level_bpe, "SEAM_SEARCH", 199)
    assert len(list(byte_level_bpe._windows(text))) > 5
    assert tokenizer.encode(text) == whole


def test_a_text_without_seams_is_taken_apart_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(byte_level_bpe, "MAX_WINDOW", 100)
    text = "漢" * 1234
    assert max(map(len, byte_level_bpe._windows(text))) == 100
    assert BYTE_LEVEL.decode(BYTE_LEVEL.encode(text)) == text


def test_encoding_starts_no_threads_and_a_fork_after_it_warns_of_nothing() -> None:
    code = (
        "import os, threading, sys\n"
        "sys.path[:0] = sys.argv[1:]\n"
        "from tokenizer_files import byte_level_file\n"
        "from ktdesk_engine.tokenizer.tokenizer import Tokenizer\n"
        "threads = lambda: len(os.listdir('/proc/self/task')) if os.path.exists('/proc/self/task') else 0\n"
        "before = threads()\n"
        "tokenizer = Tokenizer.from_gguf(byte_level_file(['h e']))\n"
        "tokenizer.encode('hello ' * 10_000)\n"
        "assert threads() == before, (before, threads())\n"
        "if child := os.fork():\n"
        "    os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))\n"
        "assert tokenizer.decode(tokenizer.encode('hello')) == 'hello'\n"
        "os._exit(0)\n"
    )
    result = subprocess.run([sys.executable, "-c", code, *sys.path], capture_output=True, text=True, check=False)
    assert (result.returncode, result.stderr) == (0, "")
