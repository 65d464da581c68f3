"""Pictures of the app in a test: at which sizes, and compared once nothing moves any more."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
from driving import FakeLink, make_app, shown, until
from textual.pilot import Pilot

SIZES = pytest.mark.parametrize("size", [(80, 24), (140, 40)], ids=lambda size: f"{size[0]}x{size[1]}")
Compare = Callable[..., bool]
PilotScript = Callable[[Pilot[None]], Awaitable[None]]


async def settle(pilot: Pilot[None]) -> None:
    """Until the picture stays the same for a while: a busy machine takes its time."""
    last, num_same = "", 0
    while num_same < 5:
        await pilot.pause(0.1)
        now = shown(pilot.app)
        last, num_same = now, num_same + 1 if now == last else 0


def compare(
    snap_compare: Compare, link: FakeLink, size: tuple[int, int], script: PilotScript, first_place: str = "chat"
) -> None:
    async def settled(pilot: Pilot[None]) -> None:
        await until(pilot, lambda: pilot.app.link_state is not None)  # type: ignore[attr-defined]
        await script(pilot)
        await settle(pilot)

    assert snap_compare(make_app(link, first_place=first_place), terminal_size=size, run_before=settled)
