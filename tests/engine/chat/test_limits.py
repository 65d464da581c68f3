from __future__ import annotations

import errno
import gc
import importlib.util
import itertools
import json
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from ktdesk_engine.chat import process as template_process
from ktdesk_engine.chat.process import TemplateLimits, TemplateProcess
from ktdesk_engine.chat.source import TemplateSource
from ktdesk_engine.chat.template import ChatTemplate
from ktdesk_engine.errors import ConfigError, ResourceError, TemplateError

HI = [{"role": "user", "content": "hi"}]
NESTED = "{% for i in range(100000) %}{% for j in range(100000) %}BODY{% endfor %}{% endfor %}"
ENDLESS = NESTED.replace("BODY", "")
SHORT = TemplateLimits(seconds=0.5)


def chat(text: str, limits: TemplateLimits | None = None) -> ChatTemplate:
    return ChatTemplate(TemplateSource({"default": text}, origin="model.gguf"), limits=limits)


def process_of(template: ChatTemplate) -> subprocess.Popen[bytes]:
    process = template._process._process
    assert process is not None
    return process


def num_open_files() -> int:
    gc.collect()  # what tests before this one forgot
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.parametrize(
    "text",
    [
        ENDLESS,
        "{{ (10 ** (10 ** 8)) | string | length }}",  # one step that no loop limit sees
        "{% set x = namespace(s='ab') %}" + NESTED.replace("BODY", "{% set x.s = x.s[::-1] %}"),
    ],
    ids=["loops", "powers", "strings"],
)
def test_a_template_that_takes_too_long_is_stopped(text: str) -> None:
    with chat(text, SHORT) as template:
        started = time.monotonic()
        with pytest.raises(TemplateError) as raised:
            template.render(HI)
        assert time.monotonic() - started < 30
        assert template._process._process is None
    assert str(raised.value) == (
        "model.gguf: the chat template ran longer than 0.5 s and was stopped; give the prompt raw, or use another file"
    )


@pytest.mark.parametrize(
    "text",
    [
        "{% set n = 10 ** 10 %}{{ 'a' * n }}",
        "{{ '%10000000000d' % 1 }}",
        "{{ 'x' * 10 ** 8 }}" * 50,  # folded while compiling
        "{% set x = namespace(s='aaaaaaaa') %}{% for i in range(40) %}{% set x.s = x.s + x.s %}{% endfor %}",
    ],
)
def test_a_template_that_takes_too_much_memory_is_stopped(text: str) -> None:
    with chat(text) as template, pytest.raises(TemplateError, match=r"more memory than it may|ended with|ran longer"):
        template.render(HI)


def test_a_template_that_writes_too_much_is_stopped() -> None:
    with chat(NESTED.replace("BODY", "xxxxxxxxxx"), TemplateLimits(max_chars=1000)) as template:
        with pytest.raises(TemplateError, match="wrote more than any context holds"):
            template.render(HI)
        assert process_of(template).poll() is None  # it stopped by itself and serves the next


def test_a_range_that_is_too_long_is_refused() -> None:
    with chat("{{ range(10 ** 6) | list }}") as template, pytest.raises(TemplateError, match="Range too big"):
        template.render(HI)


def test_a_template_that_calls_itself_for_ever_is_an_error() -> None:
    text = "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}"
    with chat(text) as template, pytest.raises(TemplateError, match="recursion"):
        template.render(HI)


@pytest.mark.parametrize(
    "text",
    [
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ cycler.__init__.__globals__.os.popen('id').read() }}",
        "{{ namespace.__init__.__globals__ }}",
        "{{ raise_exception.__globals__['json'] }}",
        "{{ strftime_now.__closure__[0].cell_contents }}",
        "{{ self.__init__.__globals__ }}",
        "{{ '{0.__class__.__mro__}'.format('') | length + none }}",
        "{{ ('{0.__class__}' | format('')) + none }}",
        "{{ [''] | map(attribute='__class__') | map('string') | first + none }}",
        "{{ messages.append(1) }}",
        "{{ messages[0].update(role='x') }}",
        "{% set ns = namespace(__class__=1) %}",
        "{% set ns = namespace() %}{% set ns.__init__ = 1 %}",
        "{% include '/etc/passwd' %}",
        "{% import 'os' as os %}",
    ],
)
def test_a_template_cannot_leave_the_sandbox(text: str) -> None:
    with chat(text) as template, pytest.raises(TemplateError, match=r"the chat template (failed|is broken)"):
        template.render(HI)


ESCAPED = """
import os, socket, subprocess, sys
from ktdesk_engine.chat import worker as template_worker
template_worker._lock_down(1 << 30)
def refused(action):
    try:
        action()
    except (OSError, MemoryError):
        return True
    return False
os.write(1, repr([
    refused(lambda: open("/etc/passwd")),
    refused(lambda: socket.socket()),
    refused(lambda: os.pipe()),
    refused(lambda: subprocess.run(["/bin/true"])),
    refused(lambda: bytearray(2 << 30)),
    os.geteuid() == 0 or refused(os.fork),
]).encode())
"""


def test_code_that_left_the_sandbox_could_still_open_nothing() -> None:
    path = os.pathsep.join(sys.path)
    done = subprocess.run([sys.executable, "-c", ESCAPED], stdout=subprocess.PIPE, env={"PYTHONPATH": path}, check=True)
    assert done.stdout == b"[True, True, True, True, True, True]"


def test_the_process_sees_no_environment_and_is_out_of_reach_of_ctrl_c(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HF_TOKEN", "secret")
    with chat("ok") as template:
        template.render(HI)
        pid = process_of(template).pid
        assert b"secret" not in Path(f"/proc/{pid}/environ").read_bytes()
        assert os.getsid(pid) == pid
        assert sorted(os.listdir(f"/proc/{pid}/fd")) == ["0", "1", "2"]


def test_a_process_whose_parent_is_gone_ends_by_itself() -> None:
    process = template_process._start(SHORT)
    assert process.stdin is not None
    assert process.stdout is not None
    with process:
        assert process.stdout.readline() == b"{}\n"
        request = {"template": ENDLESS, "context": {}, "now": "2025-01-01T00:00:00"}
        process.stdin.write(json.dumps(request).encode() + b"\n")
        assert process.wait(timeout=30) == -signal.SIGXCPU
    idle = template_process._start(SHORT)
    with idle:
        assert idle.stdin is not None
        idle.stdin.close()
        assert idle.wait(timeout=30) == 0


def test_after_a_stop_the_next_conversation_is_served() -> None:
    text = "{% if messages[0].content == 'loop' %}" + ENDLESS + "{% endif %}ok"
    with chat(text, TemplateLimits(seconds=2)) as template:
        assert template.render(HI).text == "ok"
        with pytest.raises(TemplateError):
            template.render([{"role": "user", "content": "loop"}])
        assert template.render(HI).text == "ok"


def test_a_process_that_was_killed_between_two_renderings_is_replaced() -> None:
    with chat("ok") as template:
        template.render(HI)
        process_of(template).kill()
        process_of(template).wait()
        assert template.render(HI).text == "ok"


def test_a_process_that_is_killed_while_rendering_is_an_error_that_says_so() -> None:
    text = "{% if messages[0].content == 'loop' %}" + ENDLESS + "{% endif %}ok"
    with chat(text, TemplateLimits(seconds=30)) as template:
        template.render(HI)
        killer = threading.Timer(0.3, process_of(template).kill)
        killer.start()
        with pytest.raises(TemplateError, match="its process ended with signal 9, perhaps for lack of memory"):
            template.render([{"role": "user", "content": "loop"}])
        killer.join()


def test_an_interrupted_rendering_does_not_answer_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    with chat("{{ messages[0].content }}") as template:
        assert template.render(HI).text == "hi"

        def interrupt(*_: Any) -> bytes:
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(TemplateProcess, "_receive", interrupt)
            with pytest.raises(KeyboardInterrupt):
                template.render([{"role": "user", "content": "first"}])
        assert template.render([{"role": "user", "content": "second"}]).text == "second"


@pytest.mark.parametrize("reply", [b"nonsense\n", b"7\n", b'{"text": 7}\n', b"[" * 100_000 + b"\n"])
def test_a_reply_that_is_none_is_an_error(monkeypatch: pytest.MonkeyPatch, reply: bytes) -> None:
    with chat("ok") as template:
        template.render(HI)
        monkeypatch.setattr(TemplateProcess, "_receive", lambda *_: reply)
        with pytest.raises(TemplateError, match="sent what is no reply"):
            template.render(HI)


def test_a_reply_without_end_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    with chat("ok", TemplateLimits(max_chars=10)) as template:
        template.render(HI)
        monkeypatch.setattr(TemplateProcess, "_receive", lambda *_: b"x" * 50_000)
        with pytest.raises(TemplateError, match="sent more than it may"):
            template.render(HI)


def test_a_reply_that_never_ends_is_stopped_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    with chat("ok", SHORT) as template:
        template.render(HI)

        def drip(*_: Any) -> bytes:
            time.sleep(0.01)
            return b" "

        monkeypatch.setattr(TemplateProcess, "_receive", drip)
        with pytest.raises(TemplateError, match=r"ran longer than 0.5 s"):
            template.render(HI)


def test_without_jinja2_the_error_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with (
        chat("ok") as template,
        pytest.raises(TemplateError, match="need the Python package jinja2: install it"),
    ):
        template.render(HI)


def test_a_process_that_does_not_start_is_a_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(template_process, "START", "import sys; sys.exit(3)")
    with chat("ok") as template, pytest.raises(TemplateError, match="ended with exit status 3"):
        template.render(HI)
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with chat("ok") as template, pytest.raises(TemplateError, match=r"no process for it .*/nowhere/python"):
        template.render(HI)


def test_nothing_is_started_before_the_first_rendering_and_nothing_is_left_after_close() -> None:
    before = num_open_files()
    template = chat("ok")
    assert template._process._process is None
    for _ in range(3):
        template.render(HI)
        process = process_of(template)
        template.close()
        template.close()
        assert process.returncode is not None
    assert num_open_files() == before


def test_a_template_that_is_forgotten_ends_its_process() -> None:
    before = num_open_files()
    template = chat("ok")
    template.render(HI)
    process = process_of(template)
    del template
    gc.collect()
    assert process.returncode is not None
    assert num_open_files() == before


def test_threads_get_their_own_answers() -> None:
    with chat("{{ messages[0].content }}") as template, ThreadPoolExecutor(4) as pool:
        contents = [str(i) * 1000 for i in range(40)]
        rendered = pool.map(lambda text: template.render([{"role": "user", "content": text}]).text, contents)
        assert list(rendered) == contents


def test_a_long_conversation_passes_through_whole() -> None:
    content = "Zeile \U0001f642 \ud800 < & \x00 \u2028\n" * 100_000
    with chat("{{ messages[0].content }}") as template:
        assert template.render([{"role": "user", "content": content}]).text == content


@pytest.mark.parametrize("limits", [{"seconds": 0}, {"seconds": float("inf")}, {"memory_bytes": 0}, {"max_chars": -1}])
def test_limits_must_limit(limits: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="must be finite numbers above 0"):
        TemplateLimits(**limits)


LOWERED = """
import json, resource
from ktdesk_engine.chat import worker as template_worker
KINDS = (resource.RLIMIT_AS, resource.RLIMIT_CPU)
for kind, limit in zip(KINDS, (600 << 20, 30)):
    resource.setrlimit(kind, (limit, limit))
template_worker._lock_down(1 << 40)
template_worker._allow_cpu(60.0)
print(json.dumps([resource.getrlimit(kind) for kind in KINDS]))
"""


def test_limits_that_the_user_set_lower_stay() -> None:
    path = os.pathsep.join(sys.path)
    done = subprocess.run([sys.executable, "-c", LOWERED], stdout=subprocess.PIPE, env={"PYTHONPATH": path}, check=True)
    assert json.loads(done.stdout) == [[600 << 20] * 2, [30, 30]]


def test_finding_the_form_and_rendering_take_the_time_of_two_renderings(monkeypatch: pytest.MonkeyPatch) -> None:
    spent: list[float] = []

    def ask(process: TemplateProcess, request: str, spent_seconds: float) -> dict[str, Any]:
        spent.append(spent_seconds)
        time.sleep(0.01)
        return {"text": ""}

    monkeypatch.setattr(TemplateProcess, "ask", ask)
    with chat("x") as template:
        template.render(HI)
    *probes, rendering = spent
    assert len(probes) > 3
    assert rendering == probes[0] == 0
    assert all(after - before >= 0.01 for before, after in itertools.pairwise(probes))


def test_time_that_was_spent_before_counts() -> None:
    with chat("ok", TemplateLimits(seconds=30)) as template:
        template.render(HI)
        with pytest.raises(TemplateError, match="ran longer than 30 s and was stopped"):
            template._process.ask("{}", spent_seconds=31)


@pytest.mark.parametrize(
    ("number", "advice"), [(errno.EMFILE, "raise ulimit -n"), (errno.EAGAIN, "ulimit -u"), (errno.ENOMEM, "close")]
)
def test_no_room_for_a_process_is_a_lack_of_resources(
    number: int, advice: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(subprocess, "Popen", refuse)
    with chat("ok") as template, pytest.raises(ResourceError, match=rf"model\.gguf: no process .*{advice}"):
        template.render(HI)
