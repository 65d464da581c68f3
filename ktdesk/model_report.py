"""What `ktdesk inspect` finds out about a file: its facts, and each part of it that the engine would refuse.

The parts are tried one by one, as loading does, so that one problem does not hide the next.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from ktdesk.exit_codes import ExitCode
from ktdesk.failures import describe, exit_code_of
from ktdesk_engine import kernels
from ktdesk_engine.backends.cpu import CpuBackend
from ktdesk_engine.chat.template import ChatTemplate
from ktdesk_engine.config import EngineName, SamplingConfig
from ktdesk_engine.engine_choice import check_with_llamacpp
from ktdesk_engine.errors import EngineError, ModelFileError
from ktdesk_engine.gguf.file import GGUFFile, TensorInfo
from ktdesk_engine.machine import available_memory_bytes
from ktdesk_engine.memory import decide_cache_type, decide_context
from ktdesk_engine.models.base import Decoder
from ktdesk_engine.models.registry import family_of
from ktdesk_engine.quants.formats import WeightType
from ktdesk_engine.text_engine import recommended_sampling
from ktdesk_engine.tokenizer.tokenizer import Tokenizer
from ktdesk_wizard.tensor_classes import TensorGroup, group_tensors

T = TypeVar("T")

SHAPE_KEYS = {
    "layers": "block_count",
    "hidden": "embedding_length",
    "heads": "attention.head_count",
    "key/value heads": "attention.head_count_kv",
    "key length": "attention.key_length",
    "value length": "attention.value_length",
    "latent length": "attention.kv_lora_rank",
    "feed-forward width": "feed_forward_length",
    "dense layers": "leading_dense_block_count",
    "experts": "expert_count",
    "experts used": "expert_used_count",
    "expert width": "expert_feed_forward_length",
    "shared experts": "expert_shared_count",
    "sliding window": "attention.sliding_window",
}
"""What it is called here -> key below the architecture's name."""
SPECIAL_TOKENS = ("bos", "eos", "eot", "eom", "unknown", "padding")
TRIAL = [{"role": "user", "content": "Hello"}]


@dataclass(frozen=True)
class Problem:
    """Why the model would not run."""

    part: str
    message: str
    exit_code: ExitCode
    """That running the model would end with."""


@dataclass(frozen=True)
class TokenizerFacts:
    model: str
    pre: str | None
    num_tokens: int
    special: dict[str, tuple[int, str]]
    """bos, eos, ... -> id and text."""
    end: tuple[tuple[int, str], ...]
    """Tokens that end an answer."""


@dataclass(frozen=True)
class TemplateFacts:
    name: str
    """file, file:NAME, or fallback:NAME where the file has none."""
    text: str


@dataclass(frozen=True)
class ModelReport:
    path: Path
    shards: tuple[tuple[Path, int], ...]
    """Each file, and its bytes."""
    version: int
    """Of GGUF."""
    architecture: str | None
    name: str | None
    licence: str | None
    shapes: dict[str, int | list[int]]
    context_length: int | None
    """Tokens that the model was trained for."""
    tensors: tuple[TensorGroup, ...]
    tokenizer: TokenizerFacts | None
    template: TemplateFacts | None
    sampling: SamplingConfig | None
    problems: tuple[Problem, ...]
    """Why ktdesk's own engine does not run it."""
    engine: EngineName | None
    """That runs it; None where none does."""
    not_by_llamacpp: str | None
    """Why llama.cpp does not run it either, where it is the one to ask."""

    @property
    def runs(self) -> bool:
        return self.engine is not None

    @property
    def exit_code(self) -> ExitCode:
        return ExitCode.OK if self.runs else self.problems[0].exit_code

    @property
    def num_bytes(self) -> int:
        return sum(num_bytes for _, num_bytes in self.shards)

    @property
    def num_values(self) -> int:
        return sum(group.num_values for group in self.tensors)


class Trials:
    """Runs the parts of loading and keeps what fails."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []

    def attempt(self, part: str, job: Callable[[], T]) -> T | None:
        """The job's result; None, and a problem more, where it fails."""
        try:
            return job()
        except (EngineError, OSError, MemoryError) as error:
            self.add(part, error)
            return None

    def add(self, part: str, error: BaseException) -> None:
        """A message that was there already says nothing new."""
        message = describe(error)
        if message not in [problem.message for problem in self.problems]:
            self.problems.append(Problem(part, message, exit_code_of(error)))


def read_report(path: Path) -> ModelReport:
    """ModelFileError where the file cannot even be opened."""
    with GGUFFile.open(path) as file:
        trials = Trials()
        architecture = trials.attempt("architecture", lambda: file.architecture)
        _try_types(file, trials)
        model = None
        if architecture is not None:
            model = trials.attempt("model", lambda: _load_model(file))
        tokenizer = trials.attempt("tokenizer", lambda: Tokenizer.from_gguf(file))
        if model is not None:
            _try_sizes(file, model, tokenizer, trials)
        template = trials.attempt("chat template", lambda: _template_facts(file, trials))
        sampling = trials.attempt("sampling", lambda: recommended_sampling(path, file.keys))
        engine, not_by_llamacpp = _engine_of(file, trials.problems)
        return ModelReport(
            path=path,
            shards=tuple((shard, shard.stat().st_size) for shard in file.shards),
            version=file.version,
            architecture=architecture,
            name=_string(file, "general.name"),
            licence=_string(file, "general.license"),
            shapes=_shapes(file, architecture),
            context_length=_integer(file, f"{architecture}.context_length"),
            tensors=group_tensors(file.tensors.values()),
            tokenizer=None if tokenizer is None else _tokenizer_facts(file, tokenizer),
            template=template,
            sampling=sampling,
            problems=tuple(trials.problems),
            engine=engine,
            not_by_llamacpp=not_by_llamacpp,
        )


def _engine_of(file: GGUFFile, problems: Sequence[Problem]) -> tuple[EngineName | None, str | None]:
    """The one that runs it; and why llama.cpp does not, where all that is wrong is that ours does not know it."""
    if not problems:
        return "ktdesk", None
    if any(problem.exit_code is not ExitCode.UNSUPPORTED for problem in problems):
        return None, None
    try:
        check_with_llamacpp(file)
    except EngineError as error:
        return None, describe(error)
    return "llamacpp", None


def _try_types(file: GGUFFile, trials: Trials) -> None:
    """One problem for each type that the engine cannot read."""
    seen: set[int] = set()
    for tensor in file.tensors.values():
        if not tensor.is_readable and tensor.type_id not in seen:
            seen.add(tensor.type_id)
            trials.attempt("tensor types", partial(_type_of, tensor))


def _type_of(tensor: TensorInfo) -> WeightType:
    return tensor.type


def _load_model(file: GGUFFile) -> Decoder:
    return family_of(file)(file, CpuBackend(kernels.worker_pool(1)))


def _try_sizes(file: GGUFFile, model: Decoder, tokenizer: Tokenizer | None, trials: Trials) -> None:
    cache_type = decide_cache_type(None, "auto")
    trials.attempt("memory", lambda: decide_context(None, model, available_memory_bytes(), cache_type))
    if tokenizer is not None and tokenizer.vocab_size > model.vocab_size:
        problem = f"{tokenizer.vocab_size} tokens, but the embedding has {model.vocab_size} rows"
        trials.add("tokenizer", ModelFileError(file.path, problem))


def _template_facts(file: GGUFFile, trials: Trials) -> TemplateFacts:
    with closing(ChatTemplate.from_gguf(file)) as template:
        name, source = template.name, template.source
        trials.attempt("chat template", lambda: template.render(TRIAL))
        return TemplateFacts(name, source.templates[source.choose(with_tools=False)])


def _tokenizer_facts(file: GGUFFile, tokenizer: Tokenizer) -> TokenizerFacts:
    special = {}
    for name in SPECIAL_TOKENS:
        token_id = _integer(file, f"tokenizer.ggml.{name}_token_id")
        if token_id is not None and 0 <= token_id < tokenizer.vocab_size:
            special[name] = (token_id, tokenizer.token_text(token_id))
    return TokenizerFacts(
        model=_string(file, "tokenizer.ggml.model") or "",
        pre=_string(file, "tokenizer.ggml.pre"),
        num_tokens=tokenizer.vocab_size,
        special=special,
        end=tuple((token_id, tokenizer.token_text(token_id)) for token_id in sorted(tokenizer.end_ids)),
    )


def _shapes(file: GGUFFile, architecture: str | None) -> dict[str, int | list[int]]:
    found: dict[str, int | list[int]] = {}
    for name, key in SHAPE_KEYS.items():
        value: Any = file.metadata.get(f"{architecture}.{key}")
        values = value.tolist() if isinstance(value, np.ndarray) else value
        if isinstance(values, (int, list)) and not isinstance(values, bool):
            found[name] = values
    return found


def _string(file: GGUFFile, key: str) -> str | None:
    """What is of another type is for the trials to complain about."""
    value: Any = file.metadata.get(key)
    return value if isinstance(value, str) else None


def _integer(file: GGUFFile, key: str) -> int | None:
    value: Any = file.metadata.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) else None
