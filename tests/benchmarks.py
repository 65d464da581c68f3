"""What the tests of measurements share: probes that take no time."""

from __future__ import annotations

import pytest

from ktdesk_engine.benchmark import ceilings


def use_small_probes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A buffer of a few megabytes and peaks of a millisecond: right, and of no use for a measurement."""
    monkeypatch.setattr(ceilings, "MIN_BUFFER_BYTES", 4 << 20)
    monkeypatch.setattr(ceilings, "l3_bytes", lambda: 0)
    monkeypatch.setattr(ceilings, "PEAK_SECONDS", 0.001)
