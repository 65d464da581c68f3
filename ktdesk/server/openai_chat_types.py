"""What `/v1/chat/completions` and `/v1/completions` read."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from ktdesk.server.strict import AnswerFields, Body, Object

MAX_ANSWERS = 16
Stop = str | Annotated[list[str], Field(max_length=16)]
Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]
BiasTable = dict[Annotated[str, Field(pattern="^[0-9]{1,9}$")], Annotated[float, Field(ge=-100, le=100)]]


class StreamOptions(Body):
    include_usage: bool = False
    include_obfuscation: bool | None = Field(None, description="No-op: nothing is obfuscated.")


class SamplingFields(AnswerFields):
    """Those that chat and text completions share."""

    model: str | None = Field(None, description="As `/v1/models` lists it; none: the server's first.")
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    n: int | None = Field(None, ge=1, le=MAX_ANSWERS)
    max_tokens: int | None = Field(None, ge=1)
    stop: Stop | None = None
    seed: int | None = Field(None, ge=-(2**63), le=2**63 - 1)
    temperature: float | None = Field(None, ge=0, le=2)
    top_p: float | None = Field(None, gt=0, le=1)
    presence_penalty: float | None = Field(None, ge=-2, le=2)
    frequency_penalty: float | None = Field(None, ge=-2, le=2)
    logit_bias: BiasTable | None = Field(None, description="Token id to what is added to its logit.")
    user: str | None = Field(None, description="No-op.")
    top_k: int | None = Field(None, ge=0, description="Beyond OpenAI's.")
    min_p: float | None = Field(None, ge=0, le=1, description="Beyond OpenAI's.")
    repetition_penalty: float | None = Field(None, ge=0.01, le=100, description="Beyond OpenAI's.")
    ignore_eos: bool | None = Field(None, description="Beyond OpenAI's: go on after the end token.")
    grammar: Grammar | None = Field(None, description="Beyond OpenAI's: the form of the whole answer.")


class Grammar(Body):
    kind: Literal["regex", "lark", "json_schema"]
    text: str


class NamedSchema(Body):
    name: str
    description: str | None = None
    schema_: Object | None = Field(None, alias="schema")
    strict: bool | None = None


class TextFormat(Body):
    type: Literal["text"]


class JsonObjectFormat(Body):
    type: Literal["json_object"]


class JsonSchemaFormat(Body):
    type: Literal["json_schema"]
    json_schema: NamedSchema


ResponseFormat = Annotated[TextFormat | JsonObjectFormat | JsonSchemaFormat, Field(discriminator="type")]


class Function(Body):
    name: str = Field(pattern="^[a-zA-Z0-9_.-]{1,128}$")
    description: str | None = None
    parameters: Object | None = None
    strict: bool | None = None


class Tool(Body):
    type: Literal["function"]
    function: Function


class NamedFunction(Body):
    name: str


class NamedTool(Body):
    type: Literal["function"]
    function: NamedFunction


class ChatBody(SamplingFields):
    messages: list[Object] = Field(min_length=1, description="Content may be a text or a list of text parts.")
    max_completion_tokens: int | None = Field(None, ge=1)
    logprobs: bool | None = None
    top_logprobs: int | None = Field(None, ge=0, le=20)
    response_format: ResponseFormat | None = None
    tools: list[Tool] | None = Field(None, max_length=256)
    tool_choice: Literal["none", "auto", "required"] | NamedTool | None = None
    parallel_tool_calls: bool | None = None
    reasoning_effort: Effort | None = Field(None, description="For templates that read it; none: no thinking.")
    chat_template_kwargs: dict[str, Any] | None = Field(None, description="Beyond OpenAI's: the template's variables.")
    truncation: Literal["auto", "disabled"] | None = Field(
        None, description="Beyond OpenAI's: auto leaves the oldest messages out where the context is too small."
    )
    modalities: list[Literal["text"]] | None = None
    metadata: dict[str, str] | None = Field(None, description="No-op.")
    store: Literal[False] | None = Field(None, description="Nothing is stored.")
    service_tier: str | None = Field(None, description="No-op.")
    safety_identifier: str | None = Field(None, description="No-op.")
    prompt_cache_key: str | None = Field(None, description="No-op: all prefixes are shared.")
    prompt_cache_retention: str | None = Field(None, description="No-op.")
    verbosity: Literal["low", "medium", "high"] | None = Field(None, description="No-op.")


class CompletionBody(SamplingFields):
    prompt: str | Annotated[list[int], Field(min_length=1)] | Annotated[list[str], Field(min_length=1, max_length=1)]
    logprobs: int | None = Field(None, ge=0, le=20)
    echo: Literal[False] | None = None
    best_of: int | None = Field(None, ge=1, le=1)
    suffix: None = None


SamplingFields.model_rebuild()
