"""Stop strings end an answer wherever token borders fall."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ktdesk_engine.stop_strings import StopStrings


def run(stops: list[str], pieces: list[str]) -> tuple[str, bool]:
    filter_, shown = StopStrings(stops), ""
    for piece in pieces:
        passed = filter_.push(piece)
        shown += passed.text
        if passed.is_stopped:
            return shown, True
    return shown + filter_.flush(), False


def test_a_stop_string_across_pieces_ends_the_text_before_it() -> None:
    assert run(["END"], ["abE", "N", "Dxyz"]) == ("ab", True)


def test_only_what_may_become_a_stop_string_is_held_back() -> None:
    stops = StopStrings(["\n\n", "User:"])
    assert stops.push("hello\n").text == "hello"
    assert stops.push("Us").text == "\n"
    assert stops.push("ual").text == "Usual"
    assert stops.flush() == ""


def test_the_first_stop_string_in_the_text_counts() -> None:
    assert run(["b", "abc"], ["xabc"]) == ("x", True)
    assert run(["c", "b"], ["abc"]) == ("a", True)


def test_without_a_stop_string_nothing_is_lost() -> None:
    assert run(["aab"], ["a", "a", "a", "a", "c", "aa"]) == ("aaaacaa", False)
    assert run([], ["as ", "it is"]) == ("as it is", False)


@given(st.text("ab", max_size=12), st.lists(st.text("ab", min_size=1, max_size=3), max_size=3), st.data())
def test_any_cut_gives_what_the_whole_text_gives(text: str, stops: list[str], data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=5)))
    pieces = [text[i:j] for i, j in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    # Of stop strings that overlap, the one that is complete first ends the text.
    ends = [text.find(stop) + len(stop) for stop in stops if stop in text]
    shown, is_stopped = run(stops, list(text))
    assert is_stopped == bool(ends)
    if not is_stopped:
        assert shown == text
        assert run(stops, pieces) == (text, False)
    else:
        assert run(stops, pieces)[1]
        assert not any(stop in shown for stop in stops)
