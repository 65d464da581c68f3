"""What a model file says about chat: its templates, the special tokens that they name, its control tokens."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from ktdesk_engine.chat.fallbacks import choose_fallback
from ktdesk_engine.errors import ModelFileError, TemplateError

SPECIAL_TOKEN_KEYS = {
    "bos_token": "bos_token_id",
    "eos_token": "eos_token_id",
    "unk_token": "unknown_token_id",
    "sep_token": "seperator_token_id",  # as GGUF spells it
    "pad_token": "padding_token_id",
    "mask_token": "mask_token_id",
    "cls_token": "cls_token_id",
}
"""Variable of a template -> key of the file, below tokenizer.ggml."""
CONTROL, USER_DEFINED = 3, 4
"""Types of tokens in a GGUF file."""


class ModelFile(Protocol):
    """What is needed of a GGUF file."""

    @property
    def path(self) -> Path: ...
    @property
    def metadata(self) -> Mapping[str, Any]: ...


NO_TOKEN = (-1, 0xFFFFFFFF)
"""What files write for an id that they do not have."""


@dataclass(frozen=True)
class TemplateSource:
    """The chat templates of a model, and what is needed to render them."""

    templates: Mapping[str, str]
    """Jinja text by name, "default" among them unless there is only one."""
    special_tokens: Mapping[str, str] = field(default_factory=dict)
    """bos_token and so on: the text that stands for them in templates."""
    control_tokens: tuple[str, ...] = ()
    fallback: str | None = None
    """Its name, where the template is ours and not the file's."""
    stop: tuple[str, ...] = ()
    """Text that ends an answer, where no token does."""
    origin: str = "the model"
    """The file, for messages."""

    @classmethod
    def from_gguf(cls, file: ModelFile) -> TemplateSource:
        """The templates of a file, or the fallback that fits its tokens."""
        templates, special_tokens = _templates(file), _special_tokens(file)
        control_tokens, origin = _tokens_of_type(file, CONTROL), str(file.path)
        if templates:
            return cls(templates, special_tokens, control_tokens, origin=origin)
        fallback = choose_fallback({*control_tokens, *_tokens_of_type(file, USER_DEFINED)})
        if not _begins_with_bos(file):
            special_tokens.pop("bos_token", None)
        templates = {"default": fallback.template}
        return cls(templates, special_tokens, control_tokens, fallback.name, fallback.stop, origin)

    def choose(self, *, with_tools: bool) -> str:
        """Name of a template, by the rule of transformers: where there are tools, the one for them."""
        if with_tools and "tool_use" in self.templates:
            return "tool_use"
        if "default" in self.templates:
            return "default"
        if len(self.templates) == 1:
            return next(iter(self.templates))
        names = ", ".join(sorted(self.templates))
        raise TemplateError(f"{self.origin}: none of its chat templates ({names}) is the default; give the prompt raw")


def _templates(file: ModelFile) -> dict[str, str]:
    prefix = "tokenizer.chat_template"
    templates = {}
    for key, text in file.metadata.items():
        if key != prefix and not key.startswith(f"{prefix}."):
            continue
        if not isinstance(text, str):
            raise ModelFileError(file.path, f"{key} must be a text: {type(text).__name__}")
        if text.strip():
            templates[key[len(prefix) + 1 :] or "default"] = text
    return templates


def _special_tokens(file: ModelFile) -> dict[str, str]:
    tokens = file.metadata.get("tokenizer.ggml.tokens", ())
    texts = {}
    for variable, name in SPECIAL_TOKEN_KEYS.items():
        token_id = file.metadata.get(f"tokenizer.ggml.{name}")
        if token_id in (None, *NO_TOKEN):
            continue
        if not isinstance(token_id, int) or not 0 <= token_id < len(tokens):
            raise ModelFileError(file.path, f"tokenizer.ggml.{name} is no id of its {len(tokens)} tokens: {token_id}")
        texts[variable] = tokens[token_id]
    return texts


def _tokens_of_type(file: ModelFile, token_type: int) -> tuple[str, ...]:
    tokens = file.metadata.get("tokenizer.ggml.tokens", ())
    types = np.asarray(file.metadata.get("tokenizer.ggml.token_type", ()))[: len(tokens)]
    return tuple(tokens[int(token_id)] for token_id in np.flatnonzero(types == token_type))


def _begins_with_bos(file: ModelFile) -> bool:
    """The file's rule; where it has none, that of its kind of vocabulary."""
    unigram = file.metadata.get("tokenizer.ggml.model") == "llama"
    return bool(file.metadata.get("tokenizer.ggml.add_bos_token", unigram))
