"""What is asked of the server for a conversation, and what of it the user may set."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ktdesk.conversations.messages import Conversation
from ktdesk.errors import UsageError


class Setting(NamedTuple):
    title: str
    low: float
    high: float
    is_whole: bool = False


SETTINGS: dict[str, Setting] = {
    "temperature": Setting("Temperature", 0, 2),
    "top_p": Setting("Top p", 0.001, 1),
    "top_k": Setting("Top k", 0, 1_000_000, is_whole=True),
    "min_p": Setting("Min p", 0, 1),
    "repetition_penalty": Setting("Repetition penalty", 0.01, 100),
    "presence_penalty": Setting("Presence penalty", -2, 2),
    "frequency_penalty": Setting("Frequency penalty", -2, 2),
    "max_tokens": Setting("Longest answer, tokens", 1, 10_000_000, is_whole=True),
    "seed": Setting("Seed", 0, 2**63 - 1, is_whole=True),
}
THINK = "think"
"""1: the template lets the model think; 0: not. Not there: as the template has it."""
LEAVE_OUT = "leave_out"
"""1: the oldest messages are left out where the context is too small."""
SWITCHES = (THINK, LEAVE_OUT)
STARTING_PRESETS: dict[str, dict[str, float]] = {
    "Exact": {"temperature": 0.0},
    "Balanced": {"temperature": 0.7, "top_p": 0.95},
    "Free": {"temperature": 1.1, "top_p": 0.98, "min_p": 0.02},
}


def setting_of(name: str, text: str) -> float | None:
    """From what was typed; None where nothing was. UsageError says what may be."""
    setting = SETTINGS[name]
    if not text.strip():
        return None
    try:
        value = int(text) if setting.is_whole else float(text)
    except ValueError:
        value = float("nan")
    if not setting.low <= value <= setting.high:
        kind = "a whole number" if setting.is_whole else "a number"
        raise UsageError(f"{setting.title} must be {kind} from {setting.low:g} to {setting.high:g}, not {text!r}")
    return value


def setting_text(name: str, value: float | None) -> str:
    """As it is typed."""
    if value is None:
        return ""
    return str(int(value)) if SETTINGS[name].is_whole else f"{value:g}"


def tools_of(text: str) -> list[dict[str, Any]]:
    """Definitions of functions: a list of OpenAI's tools, or of the functions alone."""
    if not text.strip():
        return []
    try:
        facts = json.loads(text)
    except ValueError as error:
        raise UsageError(f"the tools are no JSON: {error}") from error
    items = facts if isinstance(facts, list) else [facts]
    tools = [item if isinstance(item, dict) and "function" in item else {"function": item} for item in items]
    for tool in tools:
        if not isinstance(tool["function"], dict) or not isinstance(tool["function"].get("name"), str):
            raise UsageError("each tool must be a function with a name, as OpenAI's API has them")
    return [{"type": "function", **tool} for tool in tools]


def chat_body(conversation: Conversation, messages: Sequence[Mapping[str, Any]], model: str) -> dict[str, Any]:
    """For /v1/chat/completions."""
    body: dict[str, Any] = {"model": model, "messages": list(messages)}
    chosen = conversation.sampling
    body |= {name: value for name, value in chosen.items() if name in SETTINGS}
    if THINK in chosen:
        body["chat_template_kwargs"] = {"enable_thinking": bool(chosen[THINK])}
    if chosen.get(LEAVE_OUT):
        body["truncation"] = "auto"
    tools = tools_of(conversation.tools)
    return body | ({"tools": tools} if tools else {})
