"""YAML into dataclasses, strictly: an unknown, missing or wrong key is an error with file and line."""

from __future__ import annotations

import types
from collections.abc import Sequence
from dataclasses import MISSING, fields, is_dataclass
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

import yaml

from ktdesk_profiles.errors import ProfileError

T = TypeVar("T")

WHERE = "where"
"""A field of this name is no key: it gets file and line."""


def read_profiles(text: str, kind: type[T], origin: str) -> tuple[T, ...]:
    """All entries of a file that holds a list of them. origin: the file, for messages."""
    node = _composed(text, origin)
    if not isinstance(node, yaml.SequenceNode):
        raise _wrong(origin, node, "must hold a list of entries")
    return tuple(cast("T", _dataclass(entry, kind, origin, "an entry")) for entry in node.value)


def _composed(text: str, origin: str) -> yaml.Node | None:
    try:
        return yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f":{mark.line + 1}" if mark is not None else ""
        raise ProfileError(f"{origin}{line}: not YAML: {' '.join(str(error).split())}") from None


def _wrong(origin: str, node: yaml.Node | None, problem: str) -> ProfileError:
    line = 1 if node is None else node.start_mark.line + 1
    return ProfileError(f"{origin}:{line}: {problem}")


def _value(node: yaml.Node, hint: Any, origin: str, what: str) -> object:
    kinds = [hint]
    if get_origin(hint) in (types.UnionType, Union):
        kinds = [kind for kind in get_args(hint) if kind is not type(None)]
    if len(kinds) > 1:
        return _one_of(node, kinds, origin, what)
    (kind,) = kinds
    if is_dataclass(kind):
        return _dataclass(node, cast("type", kind), origin, what)
    if get_origin(kind) is tuple:
        return _tuple(node, get_args(kind)[0], origin, what)
    return _scalar(node, kind, origin, what)


def _one_of(node: yaml.Node, kinds: Sequence[Any], origin: str, what: str) -> object:
    """The dataclass whose field `kind` is the one that the entry names."""
    named = {get_args(get_type_hints(kind)["kind"])[0]: kind for kind in kinds}
    if not isinstance(node, yaml.MappingNode):
        raise _wrong(origin, node, f"{what} must hold keys and values")
    given = next((value for key, value in node.value if key.value == "kind"), None)
    if given is None or given.value not in named:
        raise _wrong(origin, given or node, f"{what}: kind must be one of {', '.join(named)}")
    return _dataclass(node, named[given.value], origin, what)


def _dataclass(node: yaml.Node, kind: type, origin: str, what: str) -> object:
    if not isinstance(node, yaml.MappingNode):
        raise _wrong(origin, node, f"{what} must hold keys and values")
    hints = get_type_hints(kind)
    values: dict[str, object] = {}
    if hints.pop(WHERE, None) is not None:
        values[WHERE] = f"{origin}:{node.start_mark.line + 1}"
    for key, value in node.value:
        name = str(key.value)
        if name not in hints:
            raise _wrong(origin, key, f"unknown key {name!r}; known are {', '.join(hints)}")
        if name in values:
            raise _wrong(origin, key, f"the key {name!r} is there twice")
        values[name] = _value(value, hints[name], origin, name)
    missing = [
        field.name
        for field in fields(kind)
        if field.name not in values and field.default is MISSING and field.default_factory is MISSING
    ]
    if missing:
        raise _wrong(origin, node, f"{', '.join(missing)} missing")
    try:
        return cast("object", kind(**values))
    except ProfileError as error:
        raise _wrong(origin, node, str(error)) from None


def _tuple(node: yaml.Node, kind: Any, origin: str, what: str) -> tuple[object, ...]:
    if not isinstance(node, yaml.SequenceNode):
        raise _wrong(origin, node, f"{what} must be a list")
    return tuple(_value(item, kind, origin, what) for item in node.value)


def _scalar(node: yaml.Node, kind: Any, origin: str, what: str) -> object:
    allowed = get_args(kind) if get_origin(kind) is Literal else None
    expected = f"one of {', '.join(map(str, allowed))}" if allowed else f"of type {kind.__name__}"
    if not isinstance(node, yaml.ScalarNode):
        raise _wrong(origin, node, f"{what} must be {expected}")
    value = yaml.SafeLoader("").construct_object(node)
    if kind is float and type(value) is int:
        value = float(value)
    if (allowed and value not in allowed) or (not allowed and type(value) is not kind):
        raise _wrong(origin, node, f"{what} must be {expected}: {value!r}")
    return cast("object", value)
