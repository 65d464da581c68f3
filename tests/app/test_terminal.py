"""What is shown besides answers."""

from __future__ import annotations

import io
import sys

import pytest

from ktdesk.terminal import Progress, note, on_one_line, without_control


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def terminal_for(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Standard error, from here to the end of the test."""
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    return screen


def test_escape_sequences_of_a_model_do_not_reach_the_terminal() -> None:
    shown = without_control("a\x1b[2Jb\x07\x9bc\td\ne\x7f")
    assert shown == "a\u241b[2Jb\u2407\ufffdc\td\ne\u2421"


def test_a_text_on_one_line_has_no_line_breaks() -> None:
    assert on_one_line("a\nb\tc\r") == "a\\nb c\u240d"


def test_a_note_is_dim_on_a_terminal_unless_colours_are_unwanted(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = terminal_for(monkeypatch)
    note("x")
    assert terminal.getvalue() == "\033[2mx\033[0m\n"
    monkeypatch.setenv("NO_COLOR", "1")
    note("y")
    assert terminal.getvalue().endswith("\ny\n")


def test_progress_on_a_terminal_rewrites_its_line(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = terminal_for(monkeypatch)
    progress = Progress()
    progress.step("making")
    progress.advance(2**20, 4 * 2**20)
    progress.advance(4 * 2**20, 4 * 2**20)
    progress.finish()
    assert terminal.getvalue().count("\n") == 1
    assert terminal.getvalue().split("\r\033[K")[1:] == ["making", "making   25% of 4 MiB", "making  100% of 4 MiB\n"]


def test_what_is_told_of_a_step_stands_behind_it_and_can_be_erased(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = terminal_for(monkeypatch)
    progress = Progress()
    progress.step("comparing")
    progress.tell("half done")
    progress.erase()
    assert terminal.getvalue().split("\r\033[K")[1:] == ["comparing", "comparing  half done", ""]


def test_progress_elsewhere_is_a_line_a_step(capsys: pytest.CaptureFixture[str]) -> None:
    progress = Progress()
    progress.step("fetching")
    progress.advance(1, 2)
    progress.tell("half done")
    progress.step("making")
    progress.finish()
    assert capsys.readouterr() == ("", "fetching\nmaking\n")


def test_a_step_with_an_escape_sequence_in_it_is_shown_without(capsys: pytest.CaptureFixture[str]) -> None:
    Progress().step("making a\x1b[31m.gguf")
    assert capsys.readouterr().err == "making a\u241b[31m.gguf\n"


def test_progress_without_an_end_does_not_divide_by_it(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = terminal_for(monkeypatch)
    progress = Progress()
    progress.step("making")
    progress.advance(0, 0)
    assert "100% of 0 MiB" in terminal.getvalue()


@pytest.mark.parametrize(
    ("columns", "shown"),
    [(80, "measuring memory  42%"), (22, "measuring memory  42%"), (21, "measuring me...  42%"), (8, "42%"), (3, "42")],
)
def test_on_a_narrow_terminal_a_line_that_is_rewritten_stays_one(
    monkeypatch: pytest.MonkeyPatch, columns: int, shown: str
) -> None:
    terminal = terminal_for(monkeypatch)
    monkeypatch.setattr("ktdesk.terminal._columns", lambda: columns)
    progress = Progress()
    progress.step("measuring memory")
    progress.tell("42%")
    assert terminal.getvalue().split("\r\033[K")[-1] == shown


def test_of_a_title_that_is_filled_up_to_a_column_the_blanks_go_first(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = terminal_for(monkeypatch)
    monkeypatch.setattr("ktdesk.terminal._columns", lambda: 20)
    progress = Progress()
    progress.step(f"{'Measure it':<30}")
    progress.tell("1 of 9")
    assert terminal.getvalue().split("\r\033[K")[-1] == "Measure it  1 of 9"
