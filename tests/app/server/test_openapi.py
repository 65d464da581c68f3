"""schemathesis over the server's own description: whatever is sent, the answer is one that was announced."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import content_type_conformance, status_code_conformance
from serving import RunningServer, running_server

from ktdesk.server.settings import ServerSettings

NUM_EXAMPLES = 8
CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance]


@pytest.fixture(scope="module")
def served(tool_talker: Path) -> Iterator[RunningServer]:
    yield from running_server(tool_talker, ServerSettings(port=0, max_output_tokens=3, finish_seconds=1))


@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE])
def test_whatever_is_sent_the_answer_is_one_that_was_announced(served: RunningServer, mode: GenerationMode) -> None:
    description: Any = schemathesis.openapi.from_url(f"{served.url}/openapi.json")
    operations = [result.ok() for result in description.get_all_operations()]
    assert len(operations) > 15
    for operation in operations:

        @given(case=operation.as_strategy(generation_mode=mode))
        @settings(max_examples=NUM_EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
        def check(case: Any) -> None:
            if isinstance(case.body, dict) and "model" in case.body:
                case.body["model"] = served.model
                case.body.pop("deadline_seconds", None)  # one that passes is status 504, a server's error
            case.call_and_validate(checks=CHECKS)

        if mode is GenerationMode.POSITIVE or operation.body:  # else there is nothing to get wrong
            check()


def test_the_description_has_every_route(served: RunningServer) -> None:
    paths = httpx.get(f"{served.url}/openapi.json").json()["paths"]
    assert {"/v1/chat/completions", "/v1/responses", "/v1/messages", "/api/chat", "/health"} <= set(paths)
