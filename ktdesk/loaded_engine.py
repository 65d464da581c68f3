"""A model in memory, as commands and server see it: whatever computes with it."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from typing import Any, Protocol

from ktdesk_engine.answer import StreamEvent
from ktdesk_engine.chat.template import ChatTemplate
from ktdesk_engine.config import EngineConfig, Request, SamplingConfig
from ktdesk_engine.gguf.file import GGUFFile
from ktdesk_engine.tokenizer.tokenizer import Tokenizer


class LoadedEngine(Protocol):
    """What a model in memory is. Threads may share all of it but `stream`."""

    @property
    def file(self) -> GGUFFile: ...

    @property
    def config(self) -> EngineConfig:
        """With everything decided."""
        ...

    @property
    def missing(self) -> tuple[str, ...]:
        """What it has not, of what ktdesk's own engine has."""
        ...

    @property
    def accelerator_name(self) -> str | None:
        """Which one; None without one."""
        ...

    @property
    def context(self) -> int:
        """Tokens of prompt and answer together."""
        ...

    @property
    def can_have_more_context(self) -> bool:
        """The model was trained for more than it has now."""
        ...

    @property
    def tokenizer(self) -> Tokenizer: ...

    @property
    def chat_template(self) -> ChatTemplate: ...

    @property
    def recommended_sampling(self) -> SamplingConfig: ...

    def prompt_ids(self, text: str) -> tuple[int, ...]:
        """Of a text to go on from."""
        ...

    def chat_ids(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        variables: Mapping[str, Any] | None = None,
    ) -> tuple[int, ...]:
        """Of a conversation, up to where the answer begins."""
        ...

    def stream(self, request: Request) -> Generator[StreamEvent, None, None]:
        """Answers on this thread: not where a server's thread has the engine. Closing it cancels."""
        ...


def engine_note(engine: LoadedEngine) -> str | None:
    """For people, where it is not ktdesk's own engine."""
    if engine.config.engine == "ktdesk":
        return None
    return f"llama.cpp computes it, without {', and without '.join(engine.missing)}"
