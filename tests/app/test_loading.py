"""What is shown while a model loads, and how that is stopped."""

from __future__ import annotations

from pathlib import Path

import pytest
from running import RunKtdesk

from ktdesk.exit_codes import ExitCode
from ktdesk.loading import _rest
from ktdesk_engine import kernels
from ktdesk_engine.load_progress import LoadProgress


@pytest.mark.parametrize(
    ("state", "text"),
    [
        (LoadProgress("checking", 10, 100), "checking"),
        (LoadProgress("packing", 2 * 10**9, 6 * 10**9, 1.5e9), "packing, 1.5 GB/s, 3 s left"),
        (LoadProgress("packing", 0, 300 * 10**9, 1e9), "packing, 1.0 GB/s, 5 min left"),
        (LoadProgress("packing", 100, 100, 1e9), "packing, 1.0 GB/s"),
        (LoadProgress("packing", 10, 100, 0.0), "packing, 0.0 GB/s"),
    ],
)
def test_progress_says_the_stage_the_pace_and_the_time_left(state: LoadProgress, text: str) -> None:
    assert _rest(state) == text


def test_ctrl_c_while_weights_are_packed_ends_with_130_and_without_words(
    ktdesk: RunKtdesk, talker: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(kernels, "check", interrupt)
    assert ktdesk("run", talker, "x") == (ExitCode.INTERRUPTED, "", "")


def test_weights_that_are_no_numbers_end_with_the_code_of_damaged_files(
    ktdesk: RunKtdesk, tmp_path: Path, talker: Path
) -> None:
    content = bytearray(talker.read_bytes())
    content[-4:] = b"\x00\x00\xc0\x7f"
    damaged = tmp_path / "damaged.gguf"
    damaged.write_bytes(content)
    result = ktdesk("run", damaged, "x")
    assert result.code == ExitCode.MODEL_FILE
    assert "not finite" in result.err
