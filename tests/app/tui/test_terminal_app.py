"""The app as a process in a terminal: the first picture, and a terminal that is left as it was found."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from ktdesk.ui_benchmark.terminal import AppInTerminal

LEFT_ALTERNATE_SCREEN, SHOWN_CURSOR, NO_MOUSE = b"\x1b[?1049l", b"\x1b[?25h", b"\x1b[?1003l"


@pytest.fixture
def app(tmp_path: Path) -> Iterator[AppInTerminal]:
    running = AppInTerminal(str(tmp_path), 80, 24)
    yield running
    running.close()


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
    app = AppInTerminal(str(tmp_path), 80, 24)
    app.wait_for("Chat")
    app.press("hello\r")
    assert app.wait() == 1
    assert left_as_found(app)
    told = bytes(app.written[app.written.rfind(LEFT_ALTERNATE_SCREEN) :])
    assert b"ktdesk: error: unexpected ZeroDivisionError: on purpose" in told
    assert b"Traceback" not in told
    app.close()
