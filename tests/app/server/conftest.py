"""One server in this process for each module of tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from serving import RunningServer, running_server

from ktdesk.server.settings import ServerSettings


@pytest.fixture(scope="module")
def served(talker: Path) -> Iterator[RunningServer]:
    """A model that says small letters, and does not end by itself."""
    yield from running_server(talker, ServerSettings(port=0, finish_seconds=1))


@pytest.fixture(scope="module")
def client(served: RunningServer) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=served.url, timeout=60) as client:
        yield client
