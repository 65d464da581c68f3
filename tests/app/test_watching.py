"""What is made of a server's numbers."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import psutil
import pytest

from ktdesk.expert_placing import ExpertHeat
from ktdesk.server_records import ServerRecord
from ktdesk.watching import Moment, Watcher, heat_words, limit_words, numbers_of

METRICS = """# TYPE ktdesk_http_requests_total counter
ktdesk_http_requests_total{route="/v1/models",status="200"} 7
ktdesk_http_open_requests 2
ktdesk_answer_tokens_total{model="mine"} %d
ktdesk_answer_tokens_total{model="other"} 9000
ktdesk_num_decoding{model="mine"} 3
ktdesk_decode_weight_bytes_per_second{model="mine"} 8e+09
ktdesk_decode_bandwidth_share{model="mine"} 0.8
ktdesk_cache_num_hit_pages_ram{model="mine"} 5
"""


class FakeServer(ThreadingHTTPServer):
    num_tokens = 100
    experts: object = {"rates": [[1, 3]], "resident": None}

    @property
    def record(self) -> ServerRecord:
        port, process = self.server_address[1], psutil.Process()
        url = f"http://127.0.0.1:{port}"
        return ServerRecord(os.getpid(), process.create_time(), url, port, "mine", "/models/mine.gguf", "", False, {})


class Answers(BaseHTTPRequestHandler):
    server: FakeServer

    def do_GET(self) -> None:
        text = METRICS % self.server.num_tokens if self.path == "/metrics" else json.dumps(self.server.experts)
        body = text.encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with FakeServer(("127.0.0.1", 0), Answers) as served:
        thread = threading.Thread(target=served.serve_forever, args=(0.01,))
        thread.start()
        yield served
        served.shutdown()
        thread.join()


def test_numbers_are_those_of_one_model_and_of_the_server() -> None:
    assert numbers_of(METRICS % 4, "mine") == {
        "http_open_requests": 2,
        "answer_tokens_total": 4,
        "num_decoding": 3,
        "decode_weight_bytes_per_second": 8e9,
        "decode_bandwidth_share": 0.8,
        "cache_num_hit_pages_ram": 5,
    }


def test_rates_are_of_the_time_between_two_looks(server: FakeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    watcher, now = Watcher(server.record), [50.0]
    monkeypatch.setattr("ktdesk.watching.time.monotonic", lambda: now[0])
    first = watcher.look()
    server.num_tokens, now[0] = 130, 52.0
    second = watcher.look()
    assert first is not None
    assert second is not None
    assert (first.tok_s, second.tok_s) == (0, 15)
    assert (first.has_rates, second.has_rates) == (False, True)
    assert second.num_decoding == 3
    assert second.ceiling_bytes_s == pytest.approx(10e9)
    assert second.num_hits == {"pool": 0, "ram": 5, "disk": 0}
    assert second.resident_bytes > 0


def test_how_busy_processors_were_is_of_the_time_between_two_looks_whatever_thread_looks(
    server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    watcher, idle = Watcher(server.record), psutil.cpu_times(percpu=True)[:1]
    later = [idle[0]._replace(user=idle[0].user + 3, idle=idle[0].idle + 1)]
    percents = []
    for times in (idle, later):
        monkeypatch.setattr("ktdesk.watching.psutil.cpu_times", lambda percpu, times=times: times)
        with ThreadPoolExecutor(1) as thread:
            moment = thread.submit(watcher.look).result()
        assert moment is not None
        percents += moment.node_percents.values()
    assert percents == pytest.approx([0, 75])


def test_a_server_that_began_anew_has_no_rate_below_zero(server: FakeServer) -> None:
    watcher = Watcher(server.record)
    watcher.look()
    server.num_tokens = 3
    moment = watcher.look()
    assert moment is not None
    assert moment.tok_s == 0


def test_a_server_that_is_gone_gives_nothing(server: FakeServer) -> None:
    record = server.record
    server.shutdown()
    server.server_close()
    assert Watcher(record).look() is None
    assert Watcher(record).experts() == ExpertHeat()


def test_use_of_experts_is_what_the_server_says(server: FakeServer) -> None:
    assert Watcher(server.record).experts().rates == [[1, 3]]
    server.experts = {"rates": [[2]], "resident": [[True]], "slot_bytes": 8, "blocks": [3], "of a newer server": 1}
    assert Watcher(server.record).experts() == ExpertHeat([[2]], [[True]], [3], slot_bytes=8)
    server.experts = "nothing of use"
    assert Watcher(server.record).experts() == ExpertHeat()


@pytest.mark.parametrize(
    ("moment", "words"),
    [
        (Moment(), "idle"),
        (Moment(tok_s=9, num_decoding=1, read_bytes_s=8e9, bandwidth_share=0.8), "memory-bound: 80 % of 10.0 GB/s"),
        (Moment(tok_s=9, num_decoding=1, read_bytes_s=2e9, bandwidth_share=0.2), "not bound by memory: 20 %"),
        (Moment(tok_s=9, num_decoding=1, read_bytes_s=8e9), "8.0 GB/s; `ktdesk probe --measure` finds what"),
        (Moment(tok_s=9, prompt_tok_s=500, num_prefilling=1), "compute-bound: prompts are read at 500 tok/s"),
        (Moment(prompt_tok_s=500, num_prefilling=1, peak_share=0.124), "500 tok/s, 12 % of the peak of vectors"),
        (Moment(tok_s=9, num_decoding=1, read_bytes_s=8e9, bandwidth_share=2.0), "though only 4.0 GB/s were measured"),
        (Moment(tok_s=9, num_decoding=1), "decoding"),
        (Moment(num_prefilling=1), "a prompt is read"),
    ],
)
def test_what_limits_is_said_in_words(moment: Moment, words: str) -> None:
    assert words in limit_words(moment)


def test_how_uneven_the_use_of_experts_is_is_said() -> None:
    heat = ExpertHeat([[10, 60, 5, 5], [20, 0, 0, 0]])
    assert heat_words(heat) == "The most used fifth of all experts takes 60 % of the tokens."
    assert heat_words(ExpertHeat([[0, 0]])) == "No expert was used yet."
