"""One server in this process for each module of tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from gguf import GGUFWriter
from serving import RunningServer, running_server
from tiny_models import TINY, byte_level_alphabet, write_model

from ktdesk.server.settings import ServerSettings


@pytest.fixture(scope="module")
def served(talker: Path) -> Iterator[RunningServer]:
    """A model that says small letters, and does not end by itself."""
    yield from running_server(talker, ServerSettings(port=0, finish_seconds=1))


@pytest.fixture(scope="module")
def client(served: RunningServer) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=served.url, timeout=60) as client:
        yield client


TOOL_TEMPLATE = (
    "{% if tools %}{% for t in tools %}{{ t.function.name }} {% endfor %}<tool_call>{% endif %}"
    "{% for m in messages %}{{ m.role }}:{{ m.reasoning_content or '' }}{{ m.content }}"
    "{% for c in m.tool_calls or [] %}{{ c.function.name }}{{ c.function.arguments | tojson }}"
    "{% endfor %}\n{% endfor %}assistant:{% if enable_thinking %}<think>{% endif %}{# </think> #}"
)


@pytest.fixture(scope="session")
def tool_talker(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The talker, with a template that knows tools and thinking."""

    def edit(writer: GGUFWriter) -> None:
        writer.add_chat_template(TOOL_TEMPLATE)
        writer.kv_data[0]["llama.context_length"].value = 8192
        head = writer.tensors[0]["output.weight"].tensor
        letters = [byte_level_alphabet().index(letter) for letter in "abcdefghijklmnopqrstuvwxyz"]
        head[[row for row in range(len(head)) if row not in letters]] = 0.0

    path = tmp_path_factory.mktemp("tool-talker") / "tool-talker.gguf"
    write_model(TINY["llama-moe"], path, "llama-moe", seed=3, edit=edit)
    return path


@pytest.fixture(scope="module")
def with_tools(tool_talker: Path) -> Iterator[RunningServer]:
    yield from running_server(tool_talker, ServerSettings(port=0, finish_seconds=1))
