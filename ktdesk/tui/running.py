"""Runs the app in a terminal, and leaves that as it was found."""

from __future__ import annotations

import os
import sys

from ktdesk.errors import UsageError
from ktdesk.settings import Settings


def run_app(settings: Settings) -> int:
    """The exit code. Raises what ended the app by mistake, once the terminal is itself again."""
    _check_terminal()
    from ktdesk.tui.app import KtdeskApp

    app = KtdeskApp(settings)
    app.run()
    if app._exception is not None:
        raise app._exception
    return app.return_code or 0


def _check_terminal() -> None:
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError("the app needs a terminal; `ktdesk --help` lists what works without one")
    if os.environ.get("TERM", "dumb") == "dumb":
        raise UsageError("this terminal (TERM=dumb) cannot show the app: `ktdesk chat MODEL` works on any")
