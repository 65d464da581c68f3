"""The app as a process in a terminal: the first picture, and a terminal that is left as it was found."""

from __future__ import annotations

import hashlib
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from fake_chat_server import Script as Answer
from fake_chat_server import content, fake_chat_server
from loopback_hub import LoopbackHub
from trials import measured_machine

from ktdesk.conversations.store import FILE, ConversationStore
from ktdesk.server_records import ServerRecord, running_servers, stop_server, write_record
from ktdesk.settings import Settings
from ktdesk.starting import PROGRAM
from ktdesk.ui_benchmark.terminal import AppInTerminal
from ktdesk_wizard.download.journal import read_journal
from ktdesk_wizard.store.models import JOURNAL_SUFFIX

LEFT_ALTERNATE_SCREEN, SHOWN_CURSOR, NO_MOUSE = b"\x1b[?1049l", b"\x1b[?25h", b"\x1b[?1003l"


@pytest.fixture
def app(tmp_path: Path) -> Iterator[AppInTerminal]:
    running = AppInTerminal(str(tmp_path), 80, 24)
    yield running
    running.close()


def used_before(home: Path) -> str:
    """A home in which a model was loaded before, so that the app opens in Chat."""
    (home / "app.yaml").write_text("load_last_model: false\nlast_model: gone.gguf\n")
    return str(home)


def left_as_found(app: AppInTerminal) -> bool:
    entered = app.written.rfind(b"\x1b[?1049h")
    return all(app.written.rfind(part) > entered for part in (LEFT_ALTERNATE_SCREEN, SHOWN_CURSOR, NO_MOUSE))


def test_it_opens_and_leaves_by_key(app: AppInTerminal) -> None:
    app.wait_for("Chat")
    assert app.close_by_key() == 0
    assert left_as_found(app)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_it_leaves_the_terminal_as_it_was_when_it_is_told_to_end(app: AppInTerminal, number: signal.Signals) -> None:
    app.wait_for("Chat")
    os.kill(app.pid, number)
    assert app.wait() == 128 + number
    assert left_as_found(app)


def test_it_says_so_where_standard_error_is_no_terminal(tmp_path: Path) -> None:
    terminal, inner = pty.openpty()
    environment = {**os.environ, "TERM": "xterm-256color", "KTDESK_HOME": str(tmp_path)}
    command = [sys.executable, "-c", PROGRAM]
    ended = subprocess.run(command, stdin=inner, stdout=inner, stderr=subprocess.PIPE, env=environment, timeout=60)
    os.close(inner)
    os.close(terminal)
    assert ended.returncode == 2
    assert ended.stderr.decode().splitlines() == [
        "ktdesk: error: the app draws on standard error, which is not a terminal: open it without `2>`"
    ]


def test_it_does_not_outlive_its_terminal(app: AppInTerminal) -> None:
    app.wait_for("Chat")
    assert app.hang_up() in (128 + signal.SIGHUP, 120)  # 120: Python could not write the last of its output


def test_an_error_that_nobody_expected_is_told_after_the_terminal_is_itself_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\n"
        "class Finder:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'ktdesk.tui.chat.session': raise ZeroDivisionError('on purpose')\n"
        "sys.meta_path.insert(0, Finder())\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    app = AppInTerminal(used_before(tmp_path), 80, 24)
    app.wait_for("Chat")
    app.press("hello\r")
    assert app.wait() == 1
    assert left_as_found(app)
    told = bytes(app.written[app.written.rfind(LEFT_ALTERNATE_SCREEN) :])
    assert b"ktdesk: error: unexpected ZeroDivisionError: on purpose" in told
    assert b"Traceback" not in told
    app.close()


def test_a_kill_leaves_what_was_saved_while_it_streamed(tmp_path: Path) -> None:
    with fake_chat_server(Answer(content("a sentence and the rest", 11), holds_after=1)) as server:
        port = int(server.url.rpartition(":")[2])
        begun = psutil.Process().create_time()
        record = ServerRecord(os.getpid(), begun, server.url, port, "fake-moe", "/m.gguf", "", False, {})
        write_record(Settings(home=str(tmp_path)), record)
        app = AppInTerminal(used_before(tmp_path), 80, 24)
        app.wait_for("● fake-moe")
        app.press("question\r")
        for _ in range(300):
            app.read_for(0.1)
            if answers(tmp_path):
                break
        app.close()  # by SIGKILL
    assert answers(tmp_path) == ["a sentence "]


def test_a_download_goes_on_after_a_kill_and_ends_with_the_right_bytes(
    hub: LoopbackHub, tiny_model: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "nobody"))
    measured_machine(tmp_path)
    sha256 = hub.add("owner/Tiny-GGUF", "tiny-F32.gguf", tiny_model("qwen3moe").read_bytes())
    killed = AppInTerminal(str(tmp_path), 80, 24)
    killed.wait_for("Choose a model")
    killed.wait_for("Processor")
    killed.press("\r")
    killed.wait_for("OWNER/REPOSITORY")
    killed.press("owner/Tiny-GGUF:F32")
    killed.wait_for("Enter looks for the repository owner/Tiny-GGUF.")
    killed.press("\r")
    killed.wait_for("of memory?")
    hub.bytes_s = 500_000.0
    killed.press("\r")
    killed.wait_for("Pause")
    target = tmp_path / "models" / "owner" / "Tiny-GGUF" / "tiny-F32.gguf"
    while not written_bytes(target):
        killed.read_for(0.1)
    killed.close()  # by SIGKILL
    begun, hub.bytes_s, num_asked = written_bytes(target), None, len(hub.bytes_asked())
    assert not target.exists()
    again = AppInTerminal(str(tmp_path), 80, 24)
    again.wait_for("Go on with owner/Tiny-GGUF:F32")
    again.press("\t\r")
    again.wait_for("is ready")
    again.close()
    starts = [asked.start for asked in hub.bytes_asked()[num_asked:]]
    assert begun in starts
    assert starts.count(0) == 1, "for its header"
    assert hashlib.sha256(target.read_bytes()).hexdigest() == sha256
    for record in running_servers(Settings(home=str(tmp_path))):
        assert stop_server(record, 30)


def written_bytes(target: Path) -> int:
    """That the journal of a file has, without a gap."""
    path = Path(f"{target}{JOURNAL_SUFFIX}")
    stretches = read_journal(path)[1] if path.exists() else ()
    return max((stretch.end for stretch in stretches), default=0)


def answers(folder: Path) -> list[str]:
    """Of the database, as another process sees it."""
    if not (folder / FILE).exists():
        return []
    store = ConversationStore(folder / FILE)
    found = [store.load(item.conversation_id) for item in store.summaries()]
    store.close()
    messages = [message for conversation in found if conversation for message in conversation.path]
    return [message.content for message in messages if message.role == "assistant" and message.content]
