"""In which line of a file of facts a key stands."""

from __future__ import annotations

import re

import yaml


def line_of(text: str, path: str, key: str) -> int | None:
    """Counted from 1. path: names of the keys around it, as errors have them, such as `: numa: nodes[0]`. None: it is
    not found, as in a file that is no YAML."""
    try:
        node = yaml.compose(text, yaml.SafeLoader)
    except yaml.YAMLError:
        return None
    for name, index in re.findall(r": (\w+)(?:\[(\d+)\])?", path):
        node = _values(node).get(name, (0, None))[1]
        if index and isinstance(node, yaml.SequenceNode):
            node = node.value[int(index)]
    return _values(node).get(key, (None, None))[0]


def _values(node: yaml.Node | None) -> dict[str, tuple[int, yaml.Node]]:
    """Of a mapping: line and value of each key."""
    if not isinstance(node, yaml.MappingNode):
        return {}
    return {str(key.value): (key.start_mark.line + 1, value) for key, value in node.value}
