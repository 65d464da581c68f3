"""The tools that a request offers, as the parsers need them: their names, and which arguments are texts."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ktdesk_engine.chat.parsing.json_reading import is_json


class OfferedTools:
    """Names of tools, and the JSON schemas of their parameters."""

    def __init__(self, parameters: Mapping[str, Mapping[str, Any]]) -> None:
        self._parameters = dict(parameters)

    @classmethod
    def from_definitions(cls, tools: Sequence[Mapping[str, Any]]) -> OfferedTools:
        """tools in the form of OpenAI's chat API, as `chat.messages.check_tools` accepts them."""
        functions = [tool["function"] for tool in tools]
        return cls({function["name"]: function.get("parameters") or {} for function in functions})

    def __contains__(self, name: str) -> bool:
        return name in self._parameters

    def is_text(self, tool: str, parameter: str) -> bool:
        """Whether the schema allows nothing but a text, so that it can be passed on while it comes."""
        schema = self._schema(tool, parameter)
        choices = schema.get("enum")
        if "type" not in schema and isinstance(choices, list):
            return all(isinstance(choice, str) for choice in choices)
        return schema.get("type") == "string"

    def value_json(self, tool: str, parameter: str, text: str) -> str:
        """An argument that came as bare text, as JSON of the kind that the schema asks for."""
        kinds = self._schema(tool, parameter).get("type")
        stripped = text.strip()
        if isinstance(kinds, list) and "string" in kinds and stripped != "null":
            return json.dumps(text, ensure_ascii=False)
        lowered = stripped.lower()
        if lowered in ("true", "false", "null", "none") and not is_json(stripped):
            return "null" if lowered == "none" else lowered  # as Python spells them
        return stripped if is_json(stripped) else json.dumps(text, ensure_ascii=False)

    def _schema(self, tool: str, parameter: str) -> Mapping[str, Any]:
        properties = self._parameters.get(tool, {}).get("properties")
        schema = properties.get(parameter) if isinstance(properties, Mapping) else None
        return schema if isinstance(schema, Mapping) else {}
