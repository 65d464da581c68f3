"""What a client wants, in words of our own: all interfaces are translated into these."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from ktdesk_engine.config import SamplingConfig
from ktdesk_engine.guidance import Grammar

ToolMode = Literal["auto", "none", "required"]


@dataclass(frozen=True)
class SamplingWishes:
    """None: what the model's file recommends."""

    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    penalty_window: int | None = None
    seed: int | None = None
    logit_bias: tuple[tuple[int, float], ...] | None = None

    def over(self, recommended: SamplingConfig) -> SamplingConfig:
        return replace(recommended, **{name: value for name, value in asdict(self).items() if value is not None})


@dataclass(frozen=True)
class Limits:
    """Of one answer."""

    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    num_logprobs: int | None = None
    ignore_eos: bool = False


@dataclass(frozen=True)
class ToolWishes:
    definitions: Sequence[Mapping[str, Any]] = ()
    """In OpenAI's form."""
    mode: ToolMode = "auto"
    name: str | None = None
    """The one that must be called. With mode "required"."""
    parallel: bool = True

    @property
    def offered(self) -> list[Mapping[str, Any]]:
        return [] if self.mode == "none" else list(self.definitions)


@dataclass(frozen=True)
class ChatWanted:
    """The next message of a conversation."""

    messages: Sequence[Mapping[str, Any]]
    sampling: SamplingWishes = field(default_factory=SamplingWishes)
    limits: Limits = field(default_factory=Limits)
    tools: ToolWishes = field(default_factory=ToolWishes)
    variables: Mapping[str, Any] = field(default_factory=dict)
    """For the chat template."""
    json_schema: Mapping[str, Any] | bool | None = None
    """The answer is a JSON value of this kind."""
    grammar: Grammar | None = None
    """The answer is of this form, from its first token."""
    truncates: bool = False
    """Leave the oldest messages out where the context is too small, instead of refusing."""


@dataclass(frozen=True)
class TextWanted:
    """What comes after a text, without a chat template."""

    prompt: str | tuple[int, ...]
    sampling: SamplingWishes = field(default_factory=SamplingWishes)
    limits: Limits = field(default_factory=Limits)
    grammar: Grammar | None = None
