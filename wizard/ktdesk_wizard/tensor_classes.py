"""What the tensors of a model are for, by their names: where the bytes are."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from ktdesk_engine.gguf.file import TensorInfo

CLASSES: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (name, re.compile(pattern))
    for name, pattern in (
        ("routed experts", r"_exps\."),
        ("shared experts", r"_shexp\."),
        ("router", r"\.(ffn_gate_inp|exp_probs_b)\."),
        ("norms", r"norm(_\w+)?\.(weight|bias)$"),
        ("attention", r"\.attn_"),
        ("dense feed-forward", r"\.ffn_(gate|up|down)\."),
        ("embedding and head", r"^(token_embd|output)\."),
    )
)
"""The first pattern that is found in a name gives its class."""
OTHER = "other"


@dataclass(frozen=True)
class TensorGroup:
    """All tensors of one class and type."""

    tensor_class: str
    type_name: str
    num_tensors: int
    num_values: int
    num_bytes: int


def tensor_class(name: str) -> str:
    return next((name_ for name_, pattern in CLASSES if pattern.search(name)), OTHER)


def group_tensors(tensors: Iterable[TensorInfo]) -> tuple[TensorGroup, ...]:
    """The largest first."""
    counts: Counter[tuple[str, str]] = Counter()
    values: Counter[tuple[str, str]] = Counter()
    bytes_: Counter[tuple[str, str]] = Counter()
    for tensor in tensors:
        key = tensor_class(tensor.name), tensor.type_name
        counts[key] += 1
        values[key] += tensor.num_values
        bytes_[key] += tensor.num_bytes
    groups = (TensorGroup(*key, counts[key], values[key], bytes_[key]) for key in counts)
    return tuple(sorted(groups, key=lambda group: (-group.num_bytes, group.tensor_class, group.type_name)))
