"""What headers alone say of a comparison: whether files are of one model, and whether it has the experts asked for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from ktdesk.errors import UsageError
from ktdesk.eval_variants import Variant
from ktdesk.terminal import on_one_line
from ktdesk_engine.experts.deferral import check_deferred
from ktdesk_engine.fewer_experts import use_fewer_experts
from ktdesk_engine.gguf.file import GGUFFile

SHAPE = {"block_count": "layers", "embedding_length": "wide", "expert_count": "experts"}
MOST_OTHER_TOKENS = 0.01
"""Of the vocabulary: a tuned model may name some of its tokens anew."""


def check_one_model(paths: Sequence[Path]) -> None:
    """UsageError where a file is of another model than the first."""
    first, *others = dict.fromkeys(paths)
    if not others:
        return
    with GGUFFile.open(first) as file:
        for path in others:
            with GGUFFile.open(path) as other:
                difference = next(_differences(file, other), None)
            if difference is not None:
                names = f"{on_one_line(str(first))} and {on_one_line(str(path))}"
                raise UsageError(f"{names} are not of one model, and only such files can be compared: {difference}")


def check_experts(variants: Sequence[Variant]) -> None:
    """ConfigError where more experts are to be used or deferred than a token has."""
    for variant in variants:
        with GGUFFile.open(variant.path) as file:
            config = variant.options.config
            if config.experts_used is not None:
                use_fewer_experts(file, config.experts_used)
            if config.defer != "auto":
                check_deferred(config.defer, file.hparams().integer("expert_used_count", 0, minimum=0))


def _differences(file: GGUFFile, other: GGUFFile) -> Iterator[str]:
    if file.architecture != other.architecture:
        yield f"architecture {file.architecture} and {other.architecture}"
    for key, what in SHAPE.items():
        one, two = (each.hparams().integer(key, 0, minimum=0) for each in (file, other))
        if one != two:
            yield f"{one} {what} and {two}"
    tokens, other_tokens = (list(each.metadata.get("tokenizer.ggml.tokens", ())) for each in (file, other))
    if len(tokens) != len(other_tokens):
        yield f"{len(tokens):,} tokens and {len(other_tokens):,}"
    num_other = sum(one != two for one, two in zip(tokens, other_tokens, strict=False))
    if num_other > MOST_OTHER_TOKENS * len(tokens):
        yield f"{num_other:,} of {len(tokens):,} tokens are others"
