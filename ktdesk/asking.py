"""What `run`, `chat` and `demo` ask of a model, and the models that can be asked: here, or at a server."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from ktdesk.loaded_engine import LoadedEngine, engine_note
from ktdesk.options import AnswerOptions, SamplingOptions
from ktdesk_engine.answer import StreamEvent
from ktdesk_engine.config import Request, SamplingConfig


@dataclass(frozen=True)
class Asked:
    """One answer."""

    prompt: str | Sequence[dict[str, str]]
    """A text to go on from, without the chat template; or the messages of a conversation."""
    options: AnswerOptions
    sampling: SamplingOptions
    num_logprobs: int | None = None


class AskedModel(Protocol):
    """A model that is ready to answer."""

    @property
    def title(self) -> str:
        """For people."""
        ...

    @property
    def context(self) -> int: ...

    @property
    def recommended_sampling(self) -> SamplingConfig: ...

    @property
    def config_facts(self) -> dict[str, Any]:
        """How it is run."""
        ...

    @property
    def engine_note(self) -> str | None:
        """For people, where it is not ktdesk's own engine that computes it."""
        ...

    def stream(self, asked: Asked) -> Generator[StreamEvent, None, None]:
        """Raises what the engine raises. Closing it cancels."""
        ...

    def token_texts(self, token_ids: Sequence[int]) -> list[str]:
        """Of tokens that an answer told of."""
        ...


class LocalModel:
    """In this process."""

    def __init__(self, engine: LoadedEngine) -> None:
        self.engine = engine

    @property
    def title(self) -> str:
        return str(self.engine.file.metadata.get("general.name", self.engine.file.path.name))

    @property
    def context(self) -> int:
        return self.engine.context

    @property
    def recommended_sampling(self) -> SamplingConfig:
        return self.engine.recommended_sampling

    @property
    def config_facts(self) -> dict[str, Any]:
        return asdict(self.engine.config)

    @property
    def engine_note(self) -> str | None:
        return engine_note(self.engine)

    def stream(self, asked: Asked) -> Generator[StreamEvent, None, None]:
        return self.engine.stream(request_of(self.engine, asked))

    def token_texts(self, token_ids: Sequence[int]) -> list[str]:
        tokenizer = self.engine.tokenizer
        known = [token_id for token_id in token_ids if token_id < tokenizer.vocab_size]  # a file may have more rows
        texts = {token_id: tokenizer.token_bytes(token_id).decode(errors="replace") for token_id in known}
        return [texts.get(token_id, "") for token_id in token_ids]


def check_options(asked: Asked) -> None:
    """What can be said of them without the model, which takes long to load: ConfigError."""
    options, sampling = asked.options, asked.sampling.over(SamplingConfig())
    Request((0,), sampling, options.max_tokens, tuple(options.stop or ()), asked.num_logprobs)


def request_of(engine: LoadedEngine, asked: Asked) -> Request:
    """As the engine takes it."""
    options, sampling = asked.options, asked.sampling.over(engine.recommended_sampling)
    stop = tuple(options.stop or ())
    if isinstance(asked.prompt, str):
        ids = engine.prompt_ids(asked.prompt)
        return Request(ids, sampling, options.max_tokens, stop, asked.num_logprobs, is_continuation=True)
    ids = engine.chat_ids(asked.prompt, variables=options.variables)
    stop = (*stop, *engine.chat_template.stop)
    return Request(ids, sampling, options.max_tokens, stop, asked.num_logprobs)
