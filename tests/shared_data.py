"""Where a developer's checkout has the data folder beside it."""

from __future__ import annotations

from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[1]


def shared_data(relative: str) -> Path:
    """A file of the data folder; skips where it is not."""
    path = REPOSITORY.parent / "shared" / "data" / relative
    if not path.exists():
        pytest.skip(f"the developers' data folder is not here: shared/data/{relative}")
    return path
