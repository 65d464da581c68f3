"""Facts as JSON and back: what `ktdesk probe --json` prints is what `ktdesk plan --what-if` reads.

A file may hold all facts or only those that differ; a bare value in place of a fact is one that the user gives.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any, cast, get_args, get_origin, get_type_hints

import yaml

from ktdesk_wizard.errors import FactsError
from ktdesk_wizard.probe.fact import CONFIDENCES, Fact, unknown
from ktdesk_wizard.probe.fact_lines import line_of
from ktdesk_wizard.probe.machine_facts import MachineFacts

FACT_KEYS = frozenset({"value", "source", "confidence"})


def facts_to_json(facts: Any) -> Any:
    """Objects, lists and numbers; each fact an object of value, source and confidence."""
    if is_dataclass(facts) and not isinstance(facts, type):
        return {field.name: facts_to_json(getattr(facts, field.name)) for field in fields(facts)}
    if isinstance(facts, tuple):
        return [facts_to_json(item) for item in facts]
    return facts


def read_what_if(path: Path, facts: MachineFacts) -> MachineFacts:
    """These facts, with what the file says in their place. FactsError where it says what no machine has."""
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise FactsError(f"{path}: neither JSON nor YAML: {error}") from None
    except OSError as error:
        raise FactsError(f"{path}: cannot be read: {error.strerror or error}") from None
    values = _parsed(text, str(path))
    with _lines(text, str(path)):
        return overlay(facts, values, str(path))


def read_machine(text: str, origin: str) -> MachineFacts:
    """Of a machine of its own: what the text does not say is unknown."""
    values = _parsed(text, origin)
    with _lines(text, origin):
        return cast("MachineFacts", _dataclass(MachineFacts, None, values, origin, origin))


class _UnknownKeyError(FactsError):
    def __init__(self, where: str, key: object, known: Iterable[str]) -> None:
        super().__init__(f"{where}: unknown key {key!r}; known are {', '.join(known)}")
        self.where, self.key = where, str(key)


@contextmanager
def _lines(text: str, origin: str) -> Iterator[None]:
    """An unknown key is told with its line."""
    try:
        yield
    except _UnknownKeyError as error:
        line = line_of(text, error.where.removeprefix(origin), error.key)
        if line is None:
            raise
        raise FactsError(f"{origin}:{line}{str(error).removeprefix(origin)}") from None


def _parsed(text: str, origin: str) -> object:
    """JSON first: of its numbers some, such as 1e+16, are texts in YAML."""
    try:
        return cast("object", json.loads(text))
    except ValueError:
        pass
    try:
        return cast("object", yaml.safe_load(text))
    except yaml.YAMLError as error:
        raise FactsError(f"{origin}: neither JSON nor YAML: {' '.join(str(error).split())}") from None


def overlay(facts: MachineFacts, values: object, origin: str) -> MachineFacts:
    """origin: where the values are from, for messages and as the source of bare values."""
    made = cast("MachineFacts", _dataclass(MachineFacts, facts, values, origin, origin))
    cards = values.get("gpus") if isinstance(values, Mapping) else None
    if isinstance(cards, Mapping) and "gpus" in cards and "visible" not in cards:
        visible: Fact[tuple[int, ...]] = unknown(f"{origin} does not say")  # here others are seen
        made = replace(made, gpus=replace(made.gpus, visible=visible))
    return made


def _dataclass(kind: type, old: object | None, values: object, origin: str, where: str) -> object:
    """old: what keys that are absent keep; None where each must be there."""
    if not isinstance(values, Mapping):
        raise FactsError(f"{where}: must hold keys and values, not {type(values).__name__}")
    hints = get_type_hints(kind)
    for key in values:
        if key not in hints:
            raise _UnknownKeyError(where, key, hints)
    made = {}
    for name, hint in hints.items():
        before = None if old is None else getattr(old, name)
        if name in values:
            made[name] = _value(hint, before, values[name], origin, f"{where}: {name}")
        elif old is not None:
            made[name] = before
        else:
            made[name] = _missing(hint, f"{where}: {name}", origin)
    return cast("object", kind(**made))


def _missing(hint: Any, where: str, origin: str) -> object:
    """What a list's entry leaves out is unknown, if it can be."""
    if get_origin(hint) is Fact:
        return Fact(None, f"{origin} does not say", "unknown")
    if is_dataclass(hint):
        return _dataclass(cast("type", hint), None, {}, origin, where)
    raise FactsError(f"{where} is missing")


def _value(hint: Any, before: object, value: object, origin: str, where: str) -> object:
    if get_origin(hint) is Fact:
        return _fact(get_args(hint)[0], value, origin, where)
    if get_origin(hint) is tuple:
        if not isinstance(value, list):
            raise FactsError(f"{where} must be a list: {value!r:.80}")
        kind = get_args(hint)[0]
        return tuple(_value(kind, None, item, origin, f"{where}[{i}]") for i, item in enumerate(value))
    if is_dataclass(hint):
        return _dataclass(cast("type", hint), before, value, origin, where)
    return _plain(hint, value, where)


def _fact(kind: Any, value: object, origin: str, where: str) -> Fact[Any]:
    if not isinstance(value, Mapping):
        made = None if value is None else _value(kind, None, value, origin, where)
        return Fact(made, origin, "unknown" if made is None else "given")
    if set(value) != FACT_KEYS:
        raise FactsError(f"{where} must be a value, or an object of value, source and confidence: {dict(value)!r:.80}")
    if value["confidence"] not in CONFIDENCES:
        raise FactsError(f"{where}: confidence must be one of {', '.join(CONFIDENCES)}: {value['confidence']!r:.80}")
    made = None if value["value"] is None else _value(kind, None, value["value"], origin, where)
    if (made is None) != (value["confidence"] == "unknown"):
        raise FactsError(f"{where}: what is unknown has no value, and what has none is unknown")
    return Fact(made, str(value["source"]), value["confidence"])


def _plain(hint: Any, value: object, where: str) -> object:
    if hint is float and type(value) is int:
        return float(value)
    if type(value) is not hint:
        raise FactsError(f"{where} must be of type {hint.__name__}: {value!r:.80}")
    if isinstance(value, (int, float)) and not isinstance(value, bool) and not 0 <= value < 2**63:
        raise FactsError(f"{where} must be a number from 0 up: {value!r}")
    return value
