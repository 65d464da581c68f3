"""What `/api/*` read."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from ktdesk.server.strict import AnswerFields, Body, Object

Think = bool | Literal["low", "medium", "high"]
KeepAlive = str | float


class Options(AnswerFields):
    """Sampling, and what only Ollama's own engine has."""

    temperature: float | None = Field(None, ge=0)
    top_k: int | None = Field(None, ge=0)
    top_p: float | None = Field(None, gt=0, le=1)
    min_p: float | None = Field(None, ge=0, le=1)
    repeat_penalty: float | None = Field(None, ge=0.01, le=100)
    repeat_last_n: int | None = Field(None, ge=-1)
    presence_penalty: float | None = Field(None, ge=-2, le=2)
    frequency_penalty: float | None = Field(None, ge=-2, le=2)
    seed: int | None = None
    num_predict: int | None = Field(None, ge=-2, description="-1 and -2: until it ends.")
    stop: str | list[str] | None = None
    num_ctx: int | None = Field(None, description="No-op: the context is the server's --context.")
    num_thread: int | None = Field(None, description="No-op: --threads.")
    num_gpu: int | None = Field(None, description="No-op.")
    num_batch: int | None = Field(None, description="No-op.")
    main_gpu: int | None = Field(None, description="No-op.")
    use_mmap: bool | None = Field(None, description="No-op.")
    num_keep: int | None = Field(None, description="No-op: nothing is shifted out of the context.")
    numa: bool | None = Field(None, description="No-op.")
    use_mlock: bool | None = Field(None, description="No-op.")
    low_vram: bool | None = Field(None, description="No-op.")


class AnswerBody(Body):
    model: str | None = None
    stream: bool | None = Field(None, description="True unless given.")
    options: Options | None = None
    format: Literal["", "json"] | Object | None = Field(None, description="json, or a JSON schema.")
    think: Think | None = None
    keep_alive: KeepAlive | None = Field(
        None, description="No-op: the server's own counts. But 0 without a prompt lets the model leave."
    )

    @property
    def unloads(self) -> bool:
        return str(self.keep_alive).rstrip("hms") in ("0", "0.0")


class ToolFunction(Body):
    name: str
    description: str | None = None
    parameters: Object | None = None


class Tool(Body):
    type: str | None = None
    function: ToolFunction


class OllamaChatBody(AnswerBody):
    messages: list[Object] = Field(min_length=1)
    tools: list[Tool] | None = Field(None, max_length=256)


class GenerateBody(AnswerBody):
    prompt: str | None = None
    system: str | None = None
    raw: bool | None = None
    suffix: Literal[""] | None = None
    template: Literal[""] | None = Field(None, description="The model's own counts.")
    context: list[int] | None = Field(None, max_length=0, description="Not kept: use /api/chat.")
    images: list[Any] | None = Field(None, max_length=0)


class ShowBody(Body):
    model: str | None = None
    name: str | None = None
    verbose: bool | None = None
