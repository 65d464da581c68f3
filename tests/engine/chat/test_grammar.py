"""Grammars for answers: what they let through is read back as what was asked for."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from ktdesk_engine.chat.grammar import AnswerGrammar, ToolRule
from ktdesk_engine.chat.parsing import style as styles
from ktdesk_engine.chat.parsing.answer_parser import AnswerParser
from ktdesk_engine.chat.parsing.parts import CallArguments, CallStart, Reasoning, merged
from ktdesk_engine.chat.parsing.style import AnswerStyle
from ktdesk_engine.chat.parsing.tools import OfferedTools
from ktdesk_engine.errors import RequestError
from ktdesk_engine.gguf.file import GGUFFile
from ktdesk_engine.guidance import Grammar, Guidance
from ktdesk_engine.tokenizer.tokenizer import Tokenizer

SCHEMA = {
    "type": "object",
    "properties": {"unit": {"type": "string", "enum": ["C", "F"]}, "days": {"type": "integer", "enum": [1, 2]}},
    "required": ["unit", "days"],
    "additionalProperties": False,
}
THINK = ("<think>", "</think>")
CALL_STYLES = [
    *(styles.HERMES, styles.QWEN3_CODER, styles.GLM, styles.MINIMAX, styles.DEEPSEEK, styles.DEEPSEEK_FENCED),
    *(styles.DEEPSEEK_DSML, styles.KIMI, styles.PLAIN),
]
HARMONY = AnswerStyle(None, styles.HARMONY, is_harmony=True)


@pytest.fixture(scope="module")
def tokenizer(tiny_model: Callable[[str], Path]) -> Tokenizer:
    with GGUFFile.open(tiny_model("llama-moe")) as file:
        return Tokenizer.from_gguf(file)


@pytest.fixture(scope="module")
def guidance(tokenizer: Tokenizer) -> Guidance:
    return Guidance(tokenizer)


def random_answer(guidance: Guidance, tokenizer: Tokenizer, grammar: Grammar, seed: int) -> str:
    """Letters and tags as a model without any sense would choose them, if the grammar lets it."""
    random, constraint, ids = np.random.default_rng(seed), guidance.constraint(grammar), []
    while len(ids) < 2000:
        logits = random.normal(size=tokenizer.vocab_size).astype(np.float32)
        logits[list(tokenizer.end_ids)] += 3.0
        logits[ord("<") - 33 : ord("<") - 32] += 3.0
        chosen = int(np.argmax(constraint.allowed(logits)))
        constraint.accept(chosen)
        if chosen in tokenizer.end_ids:
            return tokenizer.decode(ids)
        ids.append(chosen)
    raise AssertionError("it does not end")


@pytest.mark.parametrize("style", [AnswerStyle(None, calls) for calls in CALL_STYLES])
@pytest.mark.parametrize("seed", range(3))
def test_a_required_strict_call_is_one_and_follows_its_schema(
    guidance: Guidance, tokenizer: Tokenizer, style: AnswerStyle, seed: int
) -> None:
    rules = [ToolRule("weather", SCHEMA, is_strict=True), ToolRule("now", {})]
    grammar = AnswerGrammar(style, {}, opens_reasoning=False).tool_calls(rules[:1], "required", parallel=False)
    text = random_answer(guidance, tokenizer, grammar, seed)
    parser = AnswerParser(style, OfferedTools({"weather": SCHEMA}))
    parts = [part for part in merged([*parser.push(text), *parser.finish()]) if not isinstance(part, Reasoning)]
    assert isinstance(parts[0], CallStart)
    assert parts[0].name == "weather"
    assert isinstance(parts[1], CallArguments)
    arguments = json.loads(parts[1].text)
    assert arguments["unit"] in ("C", "F")
    assert arguments["days"] in (1, 2)
    assert len(parts) == 2


@pytest.mark.parametrize("calls", CALL_STYLES)
def test_with_a_choice_the_answer_is_text_or_a_call(
    guidance: Guidance, tokenizer: Tokenizer, calls: styles.CallStyle
) -> None:
    style = AnswerStyle(None, calls)
    rules = [ToolRule("weather", SCHEMA, is_strict=True)]
    grammar = AnswerGrammar(style, {}, opens_reasoning=False).tool_calls(rules, "auto", parallel=True)
    constraint = guidance.constraint(grammar)
    for token_id in tokenizer.encode("Well, <b> is"):
        assert np.isfinite(constraint.allowed(np.zeros(tokenizer.vocab_size, np.float32))[token_id])
        constraint.accept(token_id)
    assert np.isfinite(constraint.allowed(np.zeros(tokenizer.vocab_size, np.float32))[list(tokenizer.end_ids)]).all()


def test_an_opened_call_among_text_must_be_a_right_one(guidance: Guidance, tokenizer: Tokenizer) -> None:
    rules = [ToolRule("weather", SCHEMA, is_strict=True)]
    grammar = AnswerGrammar(AnswerStyle(None, styles.HERMES), {}, opens_reasoning=False).tool_calls(
        rules, "auto", parallel=True
    )
    constraint = guidance.constraint(grammar)
    begun = 'So: <tool_call>\n{"name": "weather", "arguments": {"unit": "'
    for token_id in tokenizer.encode(begun):
        constraint.accept(token_id)
    allowed = np.isfinite(constraint.allowed(np.zeros(tokenizer.vocab_size, np.float32)))
    assert sorted(tokenizer.decode([int(i)]) for i in np.flatnonzero(allowed)) == ["C", "F"]


@pytest.mark.parametrize("opens", [True, False])
def test_a_json_answer_may_come_after_reasoning(guidance: Guidance, tokenizer: Tokenizer, opens: bool) -> None:
    style = AnswerStyle(THINK, None)
    constraint = guidance.constraint(AnswerGrammar(style, {}, opens_reasoning=opens).json_answer({"enum": [7]}))
    for token_id in tokenizer.encode(("" if opens else "<think>") + "because {}</think>\n\n7"):
        assert np.isfinite(constraint.allowed(np.zeros(tokenizer.vocab_size, np.float32))[token_id])
        constraint.accept(token_id)


def test_control_tokens_in_tags_are_tokens_and_not_text(guidance: Guidance, tokenizer: Tokenizer) -> None:
    assert tokenizer.bos_id is not None
    grammar = AnswerGrammar(AnswerStyle(None, styles.HERMES), {"<tool_call>": tokenizer.bos_id}, opens_reasoning=False)
    constraint = guidance.constraint(grammar.tool_calls([ToolRule("f", {})], "required", parallel=False))
    allowed = np.isfinite(constraint.allowed(np.zeros(tokenizer.vocab_size, np.float32)))
    assert list(np.flatnonzero(allowed)) == [tokenizer.bos_id]


def test_what_is_no_schema_no_expression_and_no_grammar_is_refused(guidance: Guidance) -> None:
    for grammar in (
        Grammar.json_schema({"type": "nothing"}),
        Grammar("regex", "(("),
        Grammar("lark", "start: nowhere"),
    ):
        with pytest.raises(RequestError, match="cannot be used"):
            guidance.constraint(grammar)


def test_a_style_without_a_grammar_says_so() -> None:
    builder = AnswerGrammar(AnswerStyle(None, styles.MISTRAL), {}, opens_reasoning=False)
    with pytest.raises(RequestError, match="mistral"):
        builder.tool_calls([ToolRule("f", {})], "required", parallel=False)


def test_harmony_may_think_and_then_must_call(guidance: Guidance, tokenizer: Tokenizer) -> None:
    rules = [ToolRule("weather", SCHEMA, is_strict=True)]
    grammar = AnswerGrammar(HARMONY, {}, opens_reasoning=False).tool_calls(rules, "required", parallel=False)
    constraint = guidance.constraint(grammar)
    text = "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>commentary to=functions.weather "
    for token_id in tokenizer.encode(text + '<|constrain|>json<|message|>{"unit": "C", "days": 2}'):
        assert np.isfinite(constraint.allowed(np.zeros(tokenizer.vocab_size, np.float32))[token_id])
        constraint.accept(token_id)
    allowed = np.isfinite(constraint.allowed(np.zeros(tokenizer.vocab_size, np.float32)))
    assert set(np.flatnonzero(allowed)) == tokenizer.end_ids
