"""Where each rule cuts. The pieces expected are worked out by hand from the published expressions."""

from __future__ import annotations

from pathlib import Path

import pytest

from ktdesk_engine.errors import UnsupportedError
from ktdesk_engine.tokenizer.pretokenizers import RULES, PretokenizerRule, rule_for


def pieces(name: str, text: str) -> list[str]:
    return [piece for piece, _ in RULES[name].splitter().pre_tokenize_str(text)]


EXPECTED = [
    # Case matters in contractions; all spaces but the last are a piece, the last joins what follows.
    ("gpt-2", "we've DON'T", ["we", "'ve", " DON", "'", "T"]),
    ("gpt-2", "Hello   world\n\n x 12345  ", ["Hello", "  ", " world", "\n\n", " x", " 12345", "  "]),
    ("gpt-2", "a\t\tb ?!c", ["a", "\t", "\t", "b", " ?!", "c"]),
    # As gpt-2, after each digit was cut out; the space before a digit is left alone.
    ("smollm", "abc123 4 don't", ["abc", "1", "2", "3", " ", "4", " don", "'t"]),
    ("starcoder", "x  42", ["x", "  ", "4", "2"]),
    # Contractions in any case; digits by threes; one character that is no letter joins the word after it.
    ("llama-bpe", "I'LL DON'T, we've", ["I", "'LL", " DON", "'T", ",", " we", "'ve"]),
    ("llama-bpe", "x's't", ["x", "'s", "'t"]),
    ("llama-bpe", " 12345 (a) 3x", [" ", "123", "45", " (", "a", ")", " ", "3", "x"]),
    ("llama-bpe", "a;\r\n\r\n  ok  ", ["a", ";\r\n\r\n", " ", " ok", "  "]),
    ("llama-bpe", "a \n \n\tb", ["a", " \n \n", "\tb"]),
    ("llama-bpe", "#tag\u3000漢字１２３４", ["#tag", "\u3000漢字", "１２３", "４"]),  # noqa: RUF001
    ("glm4", "I'LL 12345!\n\nx", ["I", "'LL", " ", "123", "45", "!\n\n", "x"]),
    ("qwen2", "It'S 1234 ok\n\n", ["It", "'S", " ", "1", "2", "3", "4", " ok", "\n\n"]),
    # A combining mark is no letter to qwen2, so it starts a word or stands alone; to qwen35 it belongs to the word.
    ("qwen2", "e\u0301te\u0301", ["e", "\u0301te", "\u0301"]),
    ("qwen35", "e\u0301te\u0301 12", ["e\u0301te\u0301", " ", "1", "2"]),
    ("qwen2", "हिन्दी", ["ह", "\u093fन", "\u094dद", "\u0940"]),
    ("qwen35", "हिन्दी!", ["हिन्दी", "!"]),
    # Line breaks one by one; words, then punctuation, with the white space before them; CJK; all digits together.
    (
        "deepseek-llm",
        "Hello  world 12345 你好,\n ",
        ["Hello", " ", " world", " ", "12345", " ", "你好", ",", "\n", " "],
    ),
    # The class of punctuation runs from ":" to "~", and so cuts ASCII letters out of the words found before.
    ("deepseek-llm", "naïve abc ?!\r\n", ["na", "ï", "ve", " abc", " ?!", "\r", "\n"]),
    ("deepseek-llm", "12  34  ", ["12", "  ", "34", "  "]),
    ("deepseek-llm", "ƻa", ["ƻ", "a"]),  # a letter without case is not among the words
    ("deepseek-coder", "if x==1:\n\treturn 22", ["if", " x", "==", "1", ":", "\n", "\treturn", " ", "2", "2"]),
    # CJK is cut out of the words found before.
    ("deepseek-coder", "한국어 中文,", ["한국어", " ", "中文", ","]),
    # Digits by threes, then Han with kana, then words that take a sign before them.
    (
        "deepseek-v3",
        "Hello, 世界abc 12345 'tis don't",
        ["Hello", ",", " ", "世界", "abc", " ", "123", "45", " '", "tis", " don", "'t"],
    ),
    ("deepseek-v3", "漢字カナひら한글", ["漢字カナひら", "한글"]),
    ("deepseek-v3", "a.b e\u0301 $x +\n\n", ["a", ".b", " e\u0301", " $", "x", " +\n\n"]),
    ("deepseek-v3", "«élan» ", ["«", "élan", "»", " "]),
    # Words end where a capital follows a small letter; the contraction belongs to the word; "/" ends like a line.
    ("gpt-4o", "HTMLParser getUserName's iPhone", ["HTMLParser", " get", "User", "Name's", " i", "Phone"]),
    ("gpt-4o", "ABC DEF'S 12345//\n", ["ABC", " DEF'S", " ", "123", "45", "//\n"]),
    ("gpt-4o", "path/to https://x", ["path", "/to", " https", "://", "x"]),
    ("gpt-4o", "!\n\n/x 我apple", ["!\n\n/", "x", " 我apple"]),
    ("minimax-m2", "getName'LL //\n1234", ["get", "Name'LL", " //\n", "123", "4"]),
    ("tekken", "getName's 123 ", ["get", "Name", "'s", " ", "1", "2", "3", " "]),
    # As gpt-4o, but Han stands apart from all other letters, and "/" does not end like a line.
    ("kimi-k2", "我想在apple工作1314天～ Don't", ["我想在", "apple", "工作", "131", "4", "天", "～", " Don't"]),  # noqa: RUF001
    ("kimi-k2", "漢字かなABCdef getName", ["漢字", "かなABCdef", " get", "Name"]),
    ("kimi-k2", "!\n/ 中 文", ["!\n", "/", " ", "中", " ", "文"]),
    ("default", "Hello, world 1234!", ["Hello", ",", " world", " ", "123", "4", "!"]),
]


@pytest.mark.parametrize(("name", "text", "expected"), EXPECTED)
def test_a_text_is_cut_as_published(name: str, text: str, expected: list[str]) -> None:
    assert pieces(name, text) == expected


@pytest.mark.parametrize("name", sorted(RULES))
def test_pieces_joined_are_the_text(name: str) -> None:
    text = " I'd \u00a0 say:\r\n\r\n\t'x' 12 345६७ हिन्दी 漢字かな 한국 e\u0301 🦙\u200d🧑 ƻ_ａｂ  \u2028 ̈ "  # noqa: RUF001
    assert "".join(pieces(name, text)) == text


@pytest.mark.parametrize(
    ("name", "same_as"),
    [
        ("llama-v3", "llama-bpe"),
        ("falcon3", "llama-bpe"),
        ("deepseek-r1-qwen", "qwen2"),
        ("chatglm-bpe", "glm4"),
    ],
)
def test_a_rule_has_several_names(name: str, same_as: str) -> None:
    assert RULES[name] is RULES[same_as]


def test_only_the_llama_3_and_tekken_rules_prefer_whole_tokens_and_begin_with_bos() -> None:
    special: set[PretokenizerRule] = {rule for rule in RULES.values() if rule.ignore_merges or rule.add_bos}
    assert special == {RULES["llama-bpe"], RULES["tekken"]}


def test_an_unknown_name_is_refused_with_the_names_that_are_known() -> None:
    with pytest.raises(UnsupportedError, match=r"^m\.gguf: tokenizer\.ggml\.pre 'gpt-9' .*known are .*gpt-2, .*smollm"):
        rule_for("gpt-9", Path("m.gguf"))
