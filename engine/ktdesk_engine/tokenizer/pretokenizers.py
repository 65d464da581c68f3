"""How byte-level BPE cuts a text before it merges: one rule per name that `tokenizer.ggml.pre` may have.

A rule is a list of regular expressions, applied in turn: each cuts what the ones before it left, and what
lies between two matches is a piece too. The expressions are those that the models' own tokenizers publish, in
the syntax of Oniguruma, which the `tokenizers` library uses. One is written anew so that its time is linear:
TRAILING_SPACE.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ktdesk_engine.errors import UnsupportedError

if TYPE_CHECKING:
    from tokenizers.pre_tokenizers import PreTokenizer


@dataclass(frozen=True)
class PretokenizerRule:
    """The cuts of one family of tokenizers, and what else its name implies."""

    patterns: tuple[str, ...]
    ignore_merges: bool = False
    """A piece that is a token as it stands becomes that token, whatever the merges would make of it."""
    add_bos: bool = False
    """Whether a text gets a BOS token, where the file does not say."""

    def splitter(self) -> PreTokenizer:
        """The cuts as the library runs them, without the step from bytes to letters."""
        from tokenizers import Regex, pre_tokenizers

        return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in self.patterns])


def rule_for(name: str, path: Path) -> PretokenizerRule:
    """The rule that the file at path names in `tokenizer.ggml.pre`."""
    if name not in RULES:
        raise UnsupportedError(
            f"{path}: tokenizer.ggml.pre {name!r} is not supported; known are {', '.join(sorted(RULES))}"
        )
    return RULES[name]


def _characters(ranges: str) -> str:
    """The inside of a character class from hexadecimal ranges: "41-5A B5" are A to Z and the micro sign."""
    bounds = [part.split("-") for part in ranges.split()]
    return "".join("-".join(rf"\x{{{bound}}}" for bound in part) for part in bounds)


# Parts that several rules share.
_CONTRACTION = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"  # up to the last line break; all but the last, which joins the next word
_UPPER = r"\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}"
_LOWER = r"\p{Ll}\p{Lm}\p{Lo}\p{M}"


def _cased_words(upper: str, lower: str, suffix: str) -> str:
    """Words that end where a capital follows a small letter: getUserName is get, User, Name."""
    lead = r"[^\r\n\p{L}\p{N}]?"
    return f"{lead}[{upper}]*[{lower}]+{suffix}|{lead}[{upper}]+[{lower}]*{suffix}"


_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_DIGIT = r"\p{N}"
_UP_TO_3_DIGITS = r"\p{N}{1,3}"


def _gpt4(digits: str, letters: str = r"\p{L}") -> str:
    """GPT-4's expression, from which llama 3, qwen and glm differ in the digits and in what a word is."""
    words = rf"[^\r\n\p{{L}}\p{{N}}]?[{letters}]+"
    return rf"{_CONTRACTION}|{words}|{digits}| ?[^\s{letters}\p{{N}}]+[\r\n]*|{_SPACES}"


_GPT4O = (
    _cased_words(_UPPER, _LOWER, f"{_CONTRACTION}?") + rf"|{_UP_TO_3_DIGITS}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_SPACES}"
)
_TEKKEN = _cased_words(_UPPER, _LOWER, "") + rf"|{_DIGIT}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_SPACES}"
_NOT_HAN = r"&&[^\p{Han}]"
_KIMI_K2 = (
    r"\p{Han}+|"
    + _cased_words(_UPPER + _NOT_HAN, _LOWER + _NOT_HAN, f"{_CONTRACTION}?")
    + rf"|{_UP_TO_3_DIGITS}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{_SPACES}"
)

_LINE_BREAK = r"[\r\n]"
_DEEPSEEK_CJK = f"[{_characters('4E00-9FA5 800-4E00 AC00-D7FF')}]+"
TRAILING_SPACE = r"(?<!\s)\s++\z"
"""Published as `\\s+$`, which tries again from each space of a long run: quadratic. This matches the same."""

# Letters that have a case, as of the Unicode version that DeepSeek LLM was trained with.
_CASED_LETTERS = _characters(
    "41-5A 61-7A B5 C0-D6 D8-F6 F8-1BA 1BC-1BF 1C4-293 295-2AF 370-373 376 377 37B-37D 37F 386 388-38A 38C "
    "38E-3A1 3A3-3F5 3F7-481 48A-52F 531-556 10A0-10C5 13A0-13F5 13F8-13FD 1C90-1CBA 1CBD-1CBF 1D00-1D2B "
    "1D6B-1D77 1D79-1D9A 1E00-1F15 1F18-1F1D 1F20-1F45 1F48-1F4D 1F50-1F57 1F59 1F5B 1F5D 1F5F-1F7D "
    "1F80-1FB4 1FB6-1FBC 1FBE 1FC2-1FC4 1FC6-1FCC 1FD0-1FD3 1FD6-1FDB 1FE0-1FEC 1FF2-1FF4 1FF6-1FFC 2102 2107 "
    "210A-2113 2115 2119-211D 2124 2126 2128 212A-212D 212F-2134 2139 213C-213F 2145-2149 214E 2183 2184 2C00-2C7B "
    "2C7E-2CE4 2CEB-2CEE 2CF2 2CF3 A640-A66D A680-A69B A722-A76F A771-A787 A78B-A78E AB70-ABBF FB00-FB06 "
    "FB13-FB17 FF21-FF3A FF41-FF5A 10400-1044F 104B0-104D3 104D8-104FB 10C80-10CB2 10CC0-10CF2 118A0-118DF "
    "1E900-1E943"
)
_DEEPSEEK_LLM = (
    _LINE_BREAK,
    rf"\s?[{_CASED_LETTERS}]+",
    rf"\s?[{_characters('21-2F 3A-7E FF01-FF0F FF1A-FF5E 2018-201F 3000-3002')}]+",
    TRAILING_SPACE,
    _DEEPSEEK_CJK,
    r"\p{N}+",
)
_DEEPSEEK_CODER = (_LINE_BREAK, r"\s?\p{L}+", r"\s?\p{P}+", _DEEPSEEK_CJK, _DIGIT)
_DEEPSEEK_V3 = (
    _UP_TO_3_DIGITS,
    f"[{_characters('4E00-9FA5 3040-309F 30A0-30FF')}]+",
    rf"[{_characters('21-2F 3A-40 5B-60 7B-7E')}][A-Za-z]+"
    rf"|[^\r\n\p{{L}}\p{{P}}\p{{S}}]?[\p{{L}}\p{{M}}]+| ?[\p{{P}}\p{{S}}]+[\r\n]*|{_SPACES}",
)
_UNNAMED = (r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", "[0-9][0-9][0-9]")


def _named(rule: PretokenizerRule, names: str) -> dict[str, PretokenizerRule]:
    return dict.fromkeys(names.split(), rule)


RULES: dict[str, PretokenizerRule] = {
    **_named(PretokenizerRule((_GPT2,)), "gpt-2 phi-2 olmo jais exaone4 granite-docling"),
    **_named(PretokenizerRule((_DIGIT, _GPT2)), "smollm starcoder refact command-r codeshell exaone minerva-7b"),
    **_named(
        PretokenizerRule((_gpt4(_UP_TO_3_DIGITS),), ignore_merges=True, add_bos=True),
        "llama-bpe llama-v3 llama3 falcon3 falcon-h1 pixtral midm-2.0 lfm2",
    ),
    **_named(PretokenizerRule((_gpt4(_UP_TO_3_DIGITS),)), "glm4 chatglm-bpe dbrx smaug-bpe"),
    **_named(
        PretokenizerRule((_gpt4(_DIGIT),)),
        "qwen2 deepseek-r1-qwen megrez stablelm2 hunyuan solar-open grok-2",
    ),
    **_named(PretokenizerRule((_gpt4(_DIGIT, r"\p{L}\p{M}"),)), "qwen35"),
    **_named(PretokenizerRule(_DEEPSEEK_LLM), "deepseek-llm"),
    **_named(PretokenizerRule(_DEEPSEEK_CODER), "deepseek-coder"),
    **_named(PretokenizerRule(_DEEPSEEK_V3), "deepseek-v3 hunyuan-dense joyai-llm"),
    **_named(PretokenizerRule((_GPT4O,)), "gpt-4o llama4 minimax-m2 kanana2"),
    **_named(PretokenizerRule((_TEKKEN,), ignore_merges=True, add_bos=True), "tekken"),
    **_named(PretokenizerRule((_KIMI_K2,)), "kimi-k2"),
    **_named(PretokenizerRule(_UNNAMED), "default"),
}
