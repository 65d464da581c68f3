"""What `/v1/responses` reads."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from ktdesk.server.openai_chat_types import Effort
from ktdesk.server.strict import AnswerFields, Body, Object


class TextPart(Body):
    type: Literal["input_text", "output_text", "text"]
    text: str
    annotations: list[Object] | None = None
    logprobs: list[Object] | None = None


class MessageItem(Body):
    type: Literal["message"] = "message"
    role: Literal["user", "assistant", "system", "developer"]
    content: str | list[TextPart]
    id: str | None = None
    status: str | None = None
    phase: str | None = None


class CallItem(Body):
    type: Literal["function_call"]
    call_id: str
    name: str
    arguments: str
    id: str | None = None
    status: str | None = None


class ResultItem(Body):
    type: Literal["function_call_output"]
    call_id: str
    output: str | list[TextPart]
    id: str | None = None
    status: str | None = None


class ReasoningPart(Body):
    type: Literal["reasoning_text"]
    text: str


class ReasoningItem(Body):
    type: Literal["reasoning"]
    id: str | None = None
    summary: list[Object] | None = None
    content: list[ReasoningPart] | None = None
    encrypted_content: None = None
    status: str | None = None


Item = MessageItem | CallItem | ResultItem | ReasoningItem


class FunctionTool(Body):
    type: Literal["function"]
    name: str = Field(pattern="^[a-zA-Z0-9_.-]{1,128}$")
    description: str | None = None
    parameters: Object | None = None
    strict: bool | None = None


class NamedTool(Body):
    type: Literal["function"]
    name: str


class PlainFormat(Body):
    type: Literal["text", "json_object"]


class SchemaFormat(Body):
    type: Literal["json_schema"]
    name: str
    schema_: Object = Field(alias="schema")
    description: str | None = None
    strict: bool | None = None


class TextOptions(Body):
    format: Annotated[PlainFormat | SchemaFormat, Field(discriminator="type")] | None = None
    verbosity: str | None = Field(None, description="No-op.")


class ReasoningOptions(Body):
    effort: Effort | None = None
    summary: str | None = Field(None, description="No-op: reasoning is given whole.")


class ResponsesBody(AnswerFields):
    model: str | None = None
    input: str | Annotated[list[Item], Field(min_length=1)]
    instructions: str | None = None
    max_output_tokens: int | None = Field(None, ge=1)
    temperature: float | None = Field(None, ge=0, le=2)
    top_p: float | None = Field(None, gt=0, le=1)
    stream: bool | None = None
    tools: list[FunctionTool] | None = Field(None, max_length=256)
    tool_choice: Literal["none", "auto", "required"] | NamedTool | None = None
    parallel_tool_calls: bool | None = None
    text: TextOptions | None = None
    reasoning: ReasoningOptions | None = None
    truncation: Literal["auto", "disabled"] | None = None
    store: bool | None = Field(None, description="No-op: nothing is stored.")
    background: Literal[False] | None = None
    metadata: dict[str, str] | None = Field(None, description="No-op.")
    user: str | None = Field(None, description="No-op.")
    safety_identifier: str | None = Field(None, description="No-op.")
    prompt_cache_key: str | None = Field(None, description="No-op.")
    service_tier: str | None = Field(None, description="No-op.")
    include: list[str] | None = Field(None, description="No-op.")
