"""The program: `ktdesk`, and `python -m ktdesk`. Here so that Ctrl-C is quiet while the rest is imported, too."""

from __future__ import annotations

import sys
from typing import NoReturn


def main() -> NoReturn:
    try:
        if len(sys.argv) == 1 and sys.stdin.isatty() and sys.stdout.isatty():
            sys.exit(_open_app())
        from ktdesk import cli

        cli.main()
    except KeyboardInterrupt:
        from ktdesk.exit_codes import ExitCode

        sys.exit(ExitCode.INTERRUPTED)


def _open_app() -> int:
    """Without the command line, whose parsing would take a fifth of the time to the first picture."""
    import os

    from ktdesk.settings import HOME_VARIABLE, Settings

    try:
        from ktdesk.tui.running import run_app

        return run_app(Settings(home=os.environ.get(HOME_VARIABLE) or None))
    except Exception as error:
        from ktdesk.command import explained

        return explained(error, debug=False)


if __name__ == "__main__":
    main()
