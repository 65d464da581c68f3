"""The kernels, whole, before several threads of the app import what uses parts of them.

Of a package that imports its own modules, two threads that import it and one of them at once can see halves: each
would wait for the other, which Python's import ends by going on with what is there.
"""

from __future__ import annotations

import threading

_LOCK = threading.Lock()


def import_kernels() -> None:
    """Takes a moment, once."""
    with _LOCK:
        import ktdesk_engine.kernels  # noqa: F401
