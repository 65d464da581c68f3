"""What `/v1/messages` and `/v1/messages/count_tokens` read."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from ktdesk.server.strict import AnswerFields, Body, Object


class CacheControl(Body):
    """No-op: all prefixes are shared."""

    type: Literal["ephemeral"]
    ttl: str | None = None


class TextBlock(Body):
    type: Literal["text"]
    text: str
    cache_control: CacheControl | None = None
    citations: None = None


class ThinkingBlock(Body):
    type: Literal["thinking"]
    thinking: str
    signature: str | None = None


class ToolUseBlock(Body):
    type: Literal["tool_use"]
    id: str
    name: str
    input: Object
    cache_control: CacheControl | None = None


class ToolResultBlock(Body):
    type: Literal["tool_result"]
    tool_use_id: str
    content: str | list[TextBlock] | None = None
    is_error: bool | None = None
    cache_control: CacheControl | None = None


Block = Annotated[TextBlock | ThinkingBlock | ToolUseBlock | ToolResultBlock, Field(discriminator="type")]


class Message(Body):
    role: Literal["user", "assistant"]
    content: str | list[Block]


class Tool(Body):
    type: Literal["custom"] | None = None
    name: str = Field(pattern="^[a-zA-Z0-9_.-]{1,128}$")
    description: str | None = None
    input_schema: Object
    strict: bool | None = None
    cache_control: CacheControl | None = None


class ToolChoice(Body):
    type: Literal["auto", "any", "none", "tool"]
    name: str | None = None
    disable_parallel_tool_use: bool | None = None


class Thinking(Body):
    type: Literal["enabled", "disabled", "adaptive"]
    budget_tokens: int | None = Field(None, ge=1, description="No-op: reasoning counts towards max_tokens.")
    display: str | None = Field(None, description="No-op.")


class Metadata(Body):
    """No-op."""

    user_id: str | None = None


class PromptBody(Body):
    model: str | None = None
    messages: list[Message] = Field(min_length=1)
    system: str | list[TextBlock] | None = None
    tools: list[Tool] | None = Field(None, max_length=256)
    tool_choice: ToolChoice | None = None
    thinking: Thinking | None = None


class MessagesBody(PromptBody, AnswerFields):
    max_tokens: int = Field(ge=1)
    stream: bool | None = None
    temperature: float | None = Field(None, ge=0, le=1)
    top_k: int | None = Field(None, ge=0)
    top_p: float | None = Field(None, gt=0, le=1)
    stop_sequences: list[str] | None = Field(None, max_length=16)
    metadata: Metadata | None = Field(None, description="No-op.")
    service_tier: str | None = Field(None, description="No-op.")
