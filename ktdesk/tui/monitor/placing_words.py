"""What the use of experts suggests, as a table: which would change places, or what a card would take."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from string import ascii_uppercase
from typing import Any

from textual.content import Content

from ktdesk.amounts import bytes_text, counted
from ktdesk.expert_placing import Exchange, ExpertHeat, Place, Placing, Room

MOST_SHOWN = 8
"""Exchanges; the rest are counted."""
NAME_WIDTH = 11
"""Of `blk.61:383`."""
COLUMN_WIDTH = 2 * (NAME_WIDTH + 9) + 6


def marks_of(placing: Placing | None) -> dict[Place, str]:
    """Letters for the map: large where an expert would come from, onto the accelerator, small where one would leave."""
    marks = {}
    for letter, exchange in zip(
        ascii_uppercase, () if placing is None else placing.exchanges[:MOST_SHOWN], strict=False
    ):
        marks[exchange.coming], marks[exchange.leaving] = letter, letter.lower()
    return marks


def exchanges_content(
    heat: ExpertHeat, placing: Placing, options: Mapping[str, Any], profile: str, width: int = 80
) -> Content:
    """options: of the server's engine. profile: the name under which the use of experts is kept. width: of a line."""
    there = f"The {placing.num_resident:,} on the accelerator take {_percent(placing.share_now)} of the hits"
    if not placing.exchanges:
        return Content(f"{there}; none would lie better there.")
    count = counted(len(placing.exchanges), "exchange")
    head = (
        f"{there}. {count} would make that {_percent(placing.share_then)}. On the map a large letter comes, the small "
        "one goes; behind each its share of the hits:"
    )
    shown = [_exchange(heat, *each) for each in zip(ascii_uppercase, placing.exchanges[:MOST_SHOWN], strict=False)]
    if len(placing.exchanges) > MOST_SHOWN:
        shown.append(f"and {len(placing.exchanges) - MOST_SHOWN:,} more")
    return Content("\n").join(map(Content, [head, *_in_columns(shown, width), _how(options, profile)]))


def card_content(heat: ExpertHeat, rooms: list[Room], profile: str) -> Content:
    """Without an accelerator."""
    lines = [f"All {heat.num_experts:,} experts lie in memory: without an accelerator there is nothing to move."]
    if rooms:
        lines.append("Of a card's memory, besides the rest of the model and the cache, this would be worth it:")
        lines += _room_lines(rooms, heat.num_experts)
        lines.append(
            f"`--accelerator cuda --accelerator-experts N` takes the N most used, as they are kept in `ktdesk profile "
            f"show use/{profile}`."
        )
    return Content("\n".join(lines))


def _exchange(heat: ExpertHeat, letter: str, exchange: Exchange) -> str:
    comes = _side(heat, letter, exchange.coming, exchange.coming_share)
    return f"{comes}  {_side(heat, letter.lower(), exchange.leaving, exchange.leaving_share)}"


def _side(heat: ExpertHeat, letter: str, place: Place, share: float) -> str:
    name = f"blk.{heat.block(place.layer)}:{place.expert}"
    return f"{letter} {name:<{NAME_WIDTH}}{_percent(share, 2):>7}"


def _in_columns(cells: Sequence[str], width: int) -> Iterator[str]:
    count = max(1, width // COLUMN_WIDTH)
    for start in range(0, len(cells), count):
        yield "".join(f"{cell:<{COLUMN_WIDTH}}" for cell in cells[start : start + count]).rstrip()


def _room_lines(rooms: list[Room], num_experts: int) -> Iterator[str]:
    for room in rooms:
        count = f"{room.num_experts:,} of {num_experts:,} experts"
        yield f"{bytes_text(room.num_bytes):>10}  {count:<26}{_percent(room.share)} of the hits"


def _how(options: Mapping[str, Any], profile: str) -> str:
    """What does it."""
    moves = float(options.get("move_ms") or 0.0)
    by_itself = (
        f"They change places by themselves while it answers, for {moves:g} ms between two tokens at most (--move-ms), "
        "where one is used a quarter more than the other."
        if moves
        else "They stay where they are while it runs (--move-ms 0)."
    )
    is_by_use = options.get("placement_strategy", "frequency") == "frequency"
    option = "Start again (F6)" if is_by_use else "`--placement-strategy frequency`"
    return f"{by_itself} {option} places all of them so at once: the use is kept (`ktdesk profile show use/{profile}`)."


def _percent(share: float, num_digits: int = 0) -> str:
    return f"{100 * share:.{num_digits}f} %"
