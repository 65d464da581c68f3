"""A served model whose settings make another network of it says so, whoever asks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from running import RunKtdesk, StartKtdesk
from serving import server_process

TinyModel = Callable[[str], Path]
CHAT = {"messages": [{"role": "user", "content": "a"}], "max_tokens": 3}


@pytest.mark.parametrize(
    ("options", "changes"), [((), None), (("--defer", "1", "--experts", "3"), {"defer": 1, "experts_used": 3})]
)
def test_deferral_and_fewer_experts_are_named(
    start_ktdesk: StartKtdesk, tiny_model: TinyModel, options: tuple[str, ...], changes: dict[str, int] | None
) -> None:
    words = None if changes is None else "defer=1, experts_used=3"
    with (
        server_process(start_ktdesk, tiny_model("qwen3moe"), "--threads", "1", *options) as (_, url),
        httpx.Client(base_url=url, timeout=60) as client,
    ):
        for path, body in (
            ("/v1/completions", {"prompt": "a", "max_tokens": 3}),
            ("/v1/completions", {"prompt": "a", "max_tokens": 3, "stream": True}),
            ("/v1/chat/completions", CHAT),
            ("/v1/messages", CHAT),
            ("/api/chat", {"messages": CHAT["messages"], "stream": False, "options": {"num_predict": 3}}),
        ):
            response = client.post(path, json={"model": "tiny-qwen3moe", **body})
            assert response.status_code == 200, (path, response.text)
            assert response.headers.get("x-ktdesk-changed") == words, path
        facts = client.get("/v1/models").json()["data"][0]
        assert facts.get("changes") == changes
        assert "accelerator" not in facts


def test_what_is_said_when_a_model_is_ready_names_accelerator_and_changes(
    start_ktdesk: StartKtdesk, ktdesk: RunKtdesk, tiny_model: TinyModel
) -> None:
    options = ("--threads", "1", "--accelerator", "host-thread", "--defer", "1")
    with server_process(start_ktdesk, tiny_model("qwen3moe"), *options) as (_, url):
        facts = httpx.get(f"{url}/v1/models").json()["data"][0]
        assert facts["accelerator"] == "a thread of the host"
        log = ktdesk("logs", url.rpartition(":")[2]).out
        assert f"is ready at {url}, with a thread of the host; defer=1: another network than was trained" in log
