"""The program: `ktdesk`, and `python -m ktdesk`. Here so that Ctrl-C is quiet while the rest is imported, too."""

from __future__ import annotations

import sys
from typing import NoReturn


def main() -> NoReturn:
    try:
        from ktdesk import cli

        cli.main()
    except KeyboardInterrupt:
        from ktdesk.exit_codes import ExitCode

        sys.exit(ExitCode.INTERRUPTED)


if __name__ == "__main__":
    main()
