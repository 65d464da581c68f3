"""The lines for client libraries: Python that compiles, with the address and never the key."""

from __future__ import annotations

import ast
import shlex

import pytest

from ktdesk.client_snippets import CLIENTS, snippet


@pytest.mark.parametrize("needs_key", [False, True])
@pytest.mark.parametrize("client", CLIENTS)
def test_lines_are_complete(client: str, needs_key: bool) -> None:
    text = snippet(client, "http://127.0.0.1:8080", "my-model", needs_key)
    assert "http://127.0.0.1:8080" in text
    assert "my-model" in text
    assert ("KTDESK_API_KEY" in text) is needs_key
    if client == "curl":
        assert shlex.split(text)[0] == "curl"
    else:
        ast.parse(text)
