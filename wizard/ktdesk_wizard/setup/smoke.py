"""One question to a model that was just loaded: whether it answers at all, and whether that looks like words."""

from __future__ import annotations

from dataclasses import dataclass

from ktdesk_engine.config import Request, SamplingConfig
from ktdesk_engine.engine import Engine

QUESTION = "What is the capital of France? Answer with one word."
BEGINNING = "The capital of France is"
"""For a model that was not trained to chat."""
MAX_TOKENS = 24
MIN_LETTERS = 0.5
MIN_DIFFERENT = 0.25
ENOUGH_TO_JUDGE = 8


@dataclass(frozen=True)
class Smoke:
    text: str
    num_tokens: int
    is_like_words: bool


def ask(engine: Engine) -> Smoke:
    """Greedily. What is no finite number raises, as everywhere."""
    prompt = _prompt(engine)
    room = engine.context - len(prompt)
    request = Request(prompt, SamplingConfig(temperature=0), max_tokens=max(1, min(MAX_TOKENS, room)))
    text, ids = "", list[int]()
    for event in engine.stream(request):
        text += event.text
        ids += event.token_ids
    return Smoke(text.strip(), len(ids), looks_like_words(text, ids))


def _prompt(engine: Engine) -> tuple[int, ...]:
    if engine.file.keys.has("tokenizer.chat_template"):
        prompt = engine.chat_ids([{"role": "user", "content": QUESTION}])
        if len(prompt) < engine.context:
            return prompt
    return engine.prompt_ids(BEGINNING)[: engine.context - 1]


def looks_like_words(text: str, ids: list[int]) -> bool:
    """Not: the same token again and again, or signs alone. Of few tokens anything is believed."""
    if not ids or not text.strip():
        return False
    if len(ids) < ENOUGH_TO_JUDGE:
        return True
    letters = sum(sign.isalpha() or sign.isspace() for sign in text)
    return letters >= MIN_LETTERS * len(text) and len(set(ids)) >= MIN_DIFFERENT * len(ids)
