"""Runs the app in a terminal, and leaves that as it was found."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from ktdesk.errors import UsageError
from ktdesk.settings import Settings

if TYPE_CHECKING:
    from ktdesk.tui.app import KtdeskApp


def run_app(settings: Settings) -> int:
    """The exit code. Raises what ended the app by mistake, once the terminal is itself again."""
    _check_terminal()
    from ktdesk.tui.app import KtdeskApp
    from ktdesk.tui.pasting import make_pastes_safe

    make_pastes_safe()
    app = KtdeskApp(settings)
    try:
        app.run()
    finally:
        _end_reading(app)
    if app._exception is not None:
        raise app._exception
    return app.return_code or 0


def _end_reading(app: KtdeskApp) -> None:
    """Where the terminal went away while the app was ending, textual fails before it tells the thread that reads the
    keys: that would read the end of its input for ever, and Python wait for it."""
    is_over = getattr(app._driver, "exit_event", None)
    if is_over is not None:
        is_over.set()


def _check_terminal() -> None:
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError("the app needs a terminal; `ktdesk --help` lists what works without one")
    if not sys.stderr.isatty():
        raise UsageError("the app draws on standard error, which is not a terminal: open it without `2>`")
    if os.environ.get("TERM", "dumb") == "dumb":
        raise UsageError("this terminal (TERM=dumb) cannot show the app: `ktdesk chat MODEL` works on any")
