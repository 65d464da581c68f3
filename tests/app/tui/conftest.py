"""The terminal that the tests of the app pretend to have."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _a_plain_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """With many colours, and none of the user's wishes."""
    monkeypatch.setenv("COLORTERM", "truecolor")
    for name in ("NO_COLOR", "TEXTUAL_THEME", "TEXTUAL_FPS"):
        monkeypatch.delenv(name, raising=False)
