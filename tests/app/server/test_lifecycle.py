"""A server as a process: it is listed, logged and stopped, and says what keeps it from running."""

from __future__ import annotations

import json
import signal
import threading
import time
from pathlib import Path

import httpx
import pytest
from running import RunKtdesk, StartKtdesk
from serving import free_port, number, server_process, wait_until_ready

from ktdesk.exit_codes import ExitCode
from ktdesk_engine import engine as engine_module


def test_a_server_is_listed_and_logged_and_ends_well_when_it_is_told_to(
    start_ktdesk: StartKtdesk, ktdesk: RunKtdesk, talker: Path
) -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    arguments = ("--port", str(port), "--finish-seconds", "1", "--api-key", "very-secret")
    with start_ktdesk("serve", talker, *arguments) as process:
        try:
            wait_until_ready(process, url)
            listed = json.loads(ktdesk("ps", "--json").out)["servers"]
            assert [(server["port"], server["pid"]) for server in listed] == [(port, process.pid)]
            second = ktdesk("serve", talker, "--port", str(port))
            assert second.code == ExitCode.RESOURCES
            assert f"port {port}" in second.error
            assert httpx.get(f"{url}/v1/models", headers={"Authorization": "Bearer wrong"}).status_code == 401
            key = {"Authorization": "Bearer very-secret"}
            body = {"model": "talker", "prompt": "x", "max_tokens": 100_000, "stream": True}
            with httpx.stream("POST", f"{url}/v1/completions", json=body, headers=key) as answer:
                assert next(answer.iter_lines())
                log = ktdesk("logs", str(port)).out
                assert "talker loads" in log
                assert f"talker is ready at {url}" in log
                assert "secret" not in log
                assert ktdesk("stop", str(port)).code == 0
            assert process.wait(20) == 0
            ended = ktdesk("logs", str(port))
            assert "talker loads" in ended.out
            assert ended.out.endswith(" stopped\n")
            assert ktdesk("logs") == ended
            assert f"ended: {port}" in ktdesk("logs", "another").error
            assert "no server runs" in ktdesk("ps").err
            assert ktdesk("ps", "--json").out.strip() == '{\n  "servers": []\n}'
            assert "Traceback" not in (process.stderr.read() if process.stderr else "")
        finally:
            process.kill()


@pytest.mark.parametrize("num_signals", [1, 2])
def test_under_load_it_ends_in_time_and_tells_everyone_why(
    start_ktdesk: StartKtdesk, talker: Path, num_signals: int
) -> None:
    """Some answer, some wait, some read streams."""
    told: list[str] = []

    def ask(url: str, *, stream: bool) -> None:
        body = {"model": "talker", "prompt": "x" * 40, "max_tokens": 100_000, "stream": stream}
        try:
            with httpx.stream("POST", f"{url}/v1/completions", json=body, timeout=60) as answer:
                told.append(answer.read().decode())
        except httpx.TransportError as error:
            told.append(type(error).__name__)

    with server_process(start_ktdesk, talker) as (process, url):
        clients = [threading.Thread(target=ask, args=(url,), kwargs={"stream": n % 2 == 0}) for n in range(12)]
        for client in clients:
            client.start()
        while number(url, "num_decoding") < 4 or number(url, "num_waiting") < 8:
            time.sleep(0.05)
        for _ in range(num_signals):
            process.send_signal(signal.SIGTERM)
            time.sleep(0.2)
        assert process.wait(20) == 0
        for client in clients:
            client.join(20)
        assert process.stderr is not None
        assert "Traceback" not in process.stderr.read()
    assert len(told) == 12
    if num_signals == 1:
        assert all("stopp" in text for text in told), told


def test_a_second_signal_ends_it_at_once(start_ktdesk: StartKtdesk, talker: Path) -> None:
    port = free_port()
    with start_ktdesk("serve", talker, "--port", str(port), "--finish-seconds", "60") as process:
        try:
            wait_until_ready(process, f"http://127.0.0.1:{port}")
            process.send_signal(signal.SIGTERM)
            process.send_signal(signal.SIGTERM)
            assert process.wait(20) == 0
        finally:
            process.kill()


def test_a_model_that_is_not_there_is_said_before_anything_listens(ktdesk: RunKtdesk, tmp_path: Path) -> None:
    result = ktdesk("serve", tmp_path / "none.gguf", "--port", "0")
    assert result.code == ExitCode.MODEL_FILE
    assert "none.gguf" in result.error


def test_a_context_that_does_not_fit_ends_the_server_with_its_reason(
    ktdesk: RunKtdesk, talker: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_module, "available_memory_bytes", lambda: 1000)
    result = ktdesk("serve", talker, "--port", "0", "--context", "512")
    assert result.code == ExitCode.RESOURCES
    assert "512 tokens" in result.error


def test_other_machines_are_let_in_only_with_a_key_or_on_demand(ktdesk: RunKtdesk, talker: Path) -> None:
    result = ktdesk("serve", talker, "--host", "0.0.0.0", "--port", "0")
    assert result.code == ExitCode.USAGE
    assert "--api-key" in result.error


@pytest.mark.parametrize("command", ["stop", "logs"])
def test_without_a_server_there_is_none_to_name(ktdesk: RunKtdesk, command: str) -> None:
    result = ktdesk(command)
    assert result.code == ExitCode.USAGE
    assert "no server runs" in result.error
