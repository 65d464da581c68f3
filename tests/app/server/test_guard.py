"""Strangers: foreign names, foreign pages, wrong keys, bodies that are too large; and what a server says of itself."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from serving import RunningServer, running_server

from ktdesk.errors import UsageError
from ktdesk.server.settings import ServerSettings

PAGE = "https://page.example"


@pytest.fixture(scope="module")
def served(talker: Path) -> Iterator[RunningServer]:
    settings = ServerSettings(
        port=0, api_key="the key", max_body_bytes=1000, cors_origins=(PAGE,), max_output_tokens=5, finish_seconds=1
    )
    yield from running_server(talker, settings)


KEY = {"Authorization": "Bearer the key"}


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        (KEY, 200),
        ({"x-api-key": "the key"}, 200),
        ({}, 401),
        ({"Authorization": "Bearer the keys"}, 401),
        ({"Authorization": "Bearer é".encode()}, 401),
        ({**KEY, "Host": "evil.example"}, 403),
        ({**KEY, "Host": "127.0.0.1.evil.example:80"}, 403),
        ({**KEY, "Host": "localhost:9"}, 200),
        ({**KEY, "Host": ""}, 403),
        ({**KEY, "Origin": "https://evil.example"}, 403),
        ({**KEY, "Origin": "null"}, 403),
        ({**KEY, "Origin": PAGE}, 200),
        ({**KEY, "Sec-Fetch-Site": "cross-site"}, 403),
        ({**KEY, "Sec-Fetch-Site": "same-origin"}, 200),
    ],
)
def test_only_those_who_may_are_let_in(client: httpx.Client, headers: dict[str, str], status: int) -> None:
    response = client.get("/v1/models", headers=headers)
    assert response.status_code == status
    assert "the key" not in response.text
    if status != 200:
        assert "message" in response.json()["error"]


def test_health_needs_no_key_but_a_name_of_this_server(client: httpx.Client) -> None:
    assert client.get("/health").json()["status"] == "ready"
    assert client.get("/health", headers={"Host": "evil.example"}).status_code == 403


def test_a_page_that_may_gets_its_cors_headers_and_no_other(client: httpx.Client) -> None:
    asked = {"Origin": PAGE, "Access-Control-Request-Method": "POST"}
    assert client.options("/v1/models", headers=asked).headers["access-control-allow-origin"] == PAGE
    assert client.options("/v1/models", headers={**asked, "Origin": "https://evil.example"}).status_code == 403


def test_a_body_that_is_too_large_is_refused_announced_or_not(client: httpx.Client) -> None:
    def pieces() -> Iterator[bytes]:
        for _ in range(20):
            yield b" " * 100

    assert client.post("/v1/completions", content=b" " * 1001, headers=KEY).status_code == 413
    assert client.post("/v1/completions", content=pieces(), headers=KEY).status_code == 413


def test_an_answer_is_no_longer_than_the_server_allows(client: httpx.Client, served: RunningServer) -> None:
    body = {"model": served.model, "prompt": "x", "max_tokens": 100}
    assert client.post("/v1/completions", json=body, headers=KEY).json()["usage"]["completion_tokens"] == 5


def test_each_interface_gets_errors_in_its_own_shape(client: httpx.Client) -> None:
    assert client.post("/v1/chat/completions").json()["error"]["type"] == "authentication_error"
    assert client.post("/v1/messages").json()["type"] == "error"
    assert isinstance(client.post("/api/chat").json()["error"], str)


def test_a_model_s_name_is_no_path(client: httpx.Client) -> None:
    for name in ("../../etc/passwd", "/etc/passwd", "./talker", "talker/."):
        response = client.post("/v1/completions", json={"model": name, "prompt": "x"}, headers=KEY)
        assert response.status_code == 404


def test_metrics_are_counted_by_route(client: httpx.Client) -> None:
    client.get("/health")
    client.get("/no/such/page", headers=KEY)
    client.post("/no/such/page", headers=KEY)
    posted = ("/v1/chat/completions", "/v1/messages", "/api/generate", "/tokenize", "/ktdesk/tokens")
    for path in posted:
        client.post(path, content="{", headers=KEY)
    text = client.get("/metrics", headers=KEY).text
    assert 'ktdesk_http_requests_total{route="/health",status="200"}' in text
    assert 'route="other",status="404"} 2' in text
    assert [path for path in posted if f'route="{path}",status="400"' not in text] == []
    assert "ktdesk_answer_tokens_total" in text


@pytest.mark.parametrize("settings", [{"host": "0.0.0.0"}, {"port": 70000}, {"api_key": " "}])
def test_settings_that_make_no_sense_are_refused(settings: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        ServerSettings(**settings)  # type: ignore[arg-type]
