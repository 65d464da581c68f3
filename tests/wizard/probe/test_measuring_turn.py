"""Two measurements at once would measure each other: the second waits, and learns whether there is a new one."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from ktdesk_wizard.probe.measurement import FILE
from ktdesk_wizard.probe.measuring_turn import measuring_turn


def nobody_waits() -> None:
    raise AssertionError


@pytest.mark.parametrize("is_kept", [True, False])
def test_the_second_waits_and_learns_what_the_first_kept(tmp_path: Path, *, is_kept: bool) -> None:
    (tmp_path / FILE).write_text("old")
    is_waiting, found = threading.Event(), []

    def second() -> None:
        with measuring_turn(tmp_path, is_waiting.set) as is_done:
            found.append(is_done)

    thread = threading.Thread(target=second)
    with measuring_turn(tmp_path, nobody_waits) as is_done:
        assert not is_done
        thread.start()
        assert is_waiting.wait(10)
        assert not found
        if is_kept:
            (tmp_path / "part").write_text("new")
            (tmp_path / "part").replace(tmp_path / FILE)
    thread.join(10)
    assert found == [is_kept]


def test_who_waits_may_leave(tmp_path: Path) -> None:
    first = measuring_turn(tmp_path, nobody_waits)
    with first, pytest.raises(AssertionError), measuring_turn(tmp_path, nobody_waits):
        pass
    with measuring_turn(tmp_path, nobody_waits) as is_done:
        assert not is_done
