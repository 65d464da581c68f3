"""`ktdesk bench --server`: what it measures and prints. How fast it was, no test asks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from running import RunKtdesk

from ktdesk.errors import UsageError
from ktdesk.exit_codes import ExitCode
from ktdesk.server_bench import ServerRow, joint_tok_s
from ktdesk_engine.benchmark.samples import Spread

SMALL = ("--server", "--prefix", "128", "--answer", "100", "--repeat", "1", "--threads", "1")


def test_a_server_is_measured_against_its_engine(ktdesk: RunKtdesk, talker: Path) -> None:
    result = ktdesk("bench", talker, *SMALL, "--json")
    assert result.code == 0, result.err
    rows = json.loads(result.out)["rows"]
    assert [(row["name"], row["target"]) for row in rows] == [
        ("first token, prefix from memory", 0.05),
        ("first token, prefix from disk", 0.15),
        ("4 streams", 0.9),
        ("1 stream, a token", 0.05),
    ]
    assert all(row["measured"]["median"] > 0 and row["reference"]["median"] > 0 for row in rows)


def test_one_part_alone_can_be_measured_and_read(ktdesk: RunKtdesk, talker: Path) -> None:
    out = ktdesk("bench", talker, *SMALL, "--part", "streams", "--streams", "2").out
    assert "2 streams" in out
    assert "at least 90%" in out
    assert "first token" not in out


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--server", "--part", "speed"), "--part is one of prefix, streams, overhead"),
        (("--server", "--batch", "2"), "--answer alone"),
        (("--server", "--prefix", "1"), "--prefix must be at least 64"),
        (("--streams", "2"), "need --server"),
    ],
)
def test_what_makes_no_sense_is_refused(ktdesk: RunKtdesk, talker: Path, options: tuple[str, ...], told: str) -> None:
    result = ktdesk("bench", talker, *options)
    assert result.code == ExitCode.USAGE
    assert told in result.error


def test_the_joint_rate_counts_while_all_answer() -> None:
    first = [1.0, 2.0, 3.0, 4.0, 5.0]
    second = [2.5, 3.5, 4.5]
    assert joint_tok_s([first, second]) == (2 + 2) / 2.0
    with pytest.raises(UsageError, match="larger --answer"):
        joint_tok_s([[1.0, 2.0], [2.0, 3.0]])


def test_a_target_is_met_from_its_side() -> None:
    def is_met(share: float, *, is_upper_bound: bool) -> bool:
        spread = Spread.of([share])
        return ServerRow("a row", "ms", spread, spread, "of it", spread, 0.5, is_upper_bound).is_met

    assert [is_met(share, is_upper_bound=True) for share in (0.4, 0.6)] == [True, False]
    assert [is_met(share, is_upper_bound=False) for share in (0.4, 0.6)] == [False, True]
