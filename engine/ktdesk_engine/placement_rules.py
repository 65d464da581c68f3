"""Rules that say where tensors lie, by their GGUF names. Who reads them from a file says where each stands in it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from ktdesk_engine.errors import ConfigError

Strategy = Literal["uniform", "frequency", "front-loading", "random"]
Place = Literal["gpu", "cpu"]

STRATEGIES: tuple[Strategy, ...] = ("uniform", "frequency", "front-loading", "random")
PLACES: tuple[Place, ...] = ("gpu", "cpu")

EXPERT_TENSORS = ("ffn_gate_exps", "ffn_up_exps", "ffn_down_exps", "ffn_gate_up_exps")


@dataclass(frozen=True)
class Rule:
    """Tensors whose whole GGUF name the expression finds somewhere go to one place."""

    match: str
    place: Place
    where: str = "a rule"
    """For errors: a file and a line."""

    def __post_init__(self) -> None:
        if self.place not in PLACES:
            raise ConfigError(f"{self.where}: place must be {' or '.join(PLACES)}: {self.place!r}")
        try:
            re.compile(self.match)
        except re.error as error:
            raise ConfigError(f"{self.where}: match {self.match!r} is no regular expression: {error}") from None


@dataclass(frozen=True)
class ExpertRules:
    """What rules say of the layers with experts."""

    forced: tuple[int, ...]
    """Layers, counted over those with experts, all of whose experts lie on the accelerator."""
    forbidden: tuple[int, ...]
    """Layers all of whose experts stay on the CPU."""


def apply_rules(rules: Sequence[Rule], tensor_names: Sequence[str], expert_blocks: Sequence[int]) -> ExpertRules:
    """The first rule that matches a tensor counts. expert_blocks: the N of `blk.N.` of each layer with experts.

    ConfigError for a rule that matches nothing, or that would take apart what is computed together.
    """
    matches = {name: _first_match(rules, name) for name in tensor_names}
    for rule in rules:
        if not any(re.search(rule.match, name) for name in tensor_names):
            raise ConfigError(f"{rule.where}: match {rule.match!r} finds no tensor of this model")
    _refuse_dense_on_cpu(matches)
    places = {block: _place_of_experts(block, matches) for block in expert_blocks}
    return ExpertRules(
        forced=tuple(index for index, block in enumerate(expert_blocks) if places[block] == "gpu"),
        forbidden=tuple(index for index, block in enumerate(expert_blocks) if places[block] == "cpu"),
    )


def _first_match(rules: Sequence[Rule], name: str) -> Rule | None:
    return next((rule for rule in rules if re.search(rule.match, name)), None)


def _is_of_experts(name: str) -> bool:
    return any(f".{part}." in name for part in EXPERT_TENSORS)


def _refuse_dense_on_cpu(matches: dict[str, Rule | None]) -> None:
    for name, rule in matches.items():
        if rule is not None and rule.place == "cpu" and not _is_of_experts(name):
            raise ConfigError(
                f"{rule.where}: {name} would stay on the CPU, but only routed experts (ffn_*_exps) can: narrow the "
                "match to them"
            )


def _place_of_experts(block: int, matches: dict[str, Rule | None]) -> Place | None:
    """ConfigError where gate, up and down would be apart: an expert is computed in one place."""
    rules = {name: rule for name, rule in matches.items() if name.startswith(f"blk.{block}.") and _is_of_experts(name)}
    places = {None if rule is None else rule.place for rule in rules.values()}
    if len(places) > 1:
        rule = next(rule for rule in rules.values() if rule is not None)
        raise ConfigError(
            f"{rule.where}: match {rule.match!r} finds a part of the experts of block {block} only; gate, up and down "
            "lie in one place, so match all of them"
        )
    return next(iter(places), None)
