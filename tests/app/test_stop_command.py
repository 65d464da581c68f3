"""`ktdesk stop` where several servers run. Each is a process that only waits."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace

import psutil
import pytest
from running import RunKtdesk

from ktdesk.exit_codes import ExitCode
from ktdesk.server_records import ServerRecord, running_servers, write_record
from ktdesk.settings import Settings


@pytest.fixture
def servers() -> Iterator[list[subprocess.Popen[bytes]]]:
    """Two, on ports 1001 and 1002."""
    waits = [sys.executable, "-c", "import time; time.sleep(600)"]
    processes = [subprocess.Popen(waits) for _ in range(2)]
    settings = Settings(home=os.environ["KTDESK_HOME"])
    for port, process in enumerate(processes, 1001):
        started = psutil.Process(process.pid).create_time()
        url = f"http://127.0.0.1:{port}"
        write_record(settings, ServerRecord(process.pid, started, url, port, "tiny", "/tiny.gguf", "", False, {}))
    yield processes
    for process in processes:
        process.kill()
        process.wait()


def test_of_several_one_is_named_or_all(ktdesk: RunKtdesk, servers: list[subprocess.Popen[bytes]]) -> None:
    result = ktdesk("stop")
    assert result.code == ExitCode.USAGE
    assert "say which server, or --all; running: 1001 (tiny), 1002 (tiny)" in result.error
    assert "contradict" in ktdesk("stop", "1001", "--all").error
    assert "--limit-seconds" in ktdesk("stop", "--all", "--limit-seconds", "nan").error
    assert len(running_servers(Settings(home=os.environ["KTDESK_HOME"]))) == 2
    assert ktdesk("stop", "1002").code == ExitCode.OK
    assert [record.port for record in running_servers(Settings(home=os.environ["KTDESK_HOME"]))] == [1001]
    assert ktdesk("stop", "--all").code == ExitCode.OK
    assert all(process.wait(10) != 0 for process in servers)
    assert ktdesk("stop", "nosuch").error.endswith("error: no server runs")
    result = ktdesk("stop", "--all")
    assert (result.code, "no server runs" in result.err) == (ExitCode.OK, True)


def test_a_model_of_the_store_may_be_named_in_part(ktdesk: RunKtdesk, servers: list[subprocess.Popen[bytes]]) -> None:
    settings = Settings(home=os.environ["KTDESK_HOME"])
    path = settings.models_folder / "Mine" / "Model.gguf"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"GGUF")
    first, second = running_servers(settings)
    write_record(settings, replace(first, model="Mine/Model"))
    assert ktdesk("stop", "model").code == ExitCode.OK
    assert running_servers(settings) == [second]
    assert ktdesk("stop", "TINY.gguf").code == ExitCode.OK
