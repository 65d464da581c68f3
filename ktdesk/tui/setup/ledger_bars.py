"""The ledger of a plan as bars: one for each device, a piece for each kind of thing, and what the pieces are."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from textual.content import Content

from ktdesk.amounts import bytes_text

if TYPE_CHECKING:
    from ktdesk_wizard.plan.plan import LedgerEntry, PlaceTotal, Plan

PIECES = (
    ("█", "$primary"),
    ("▓", "$success"),
    ("▒", "$warning"),
    ("░", "$accent"),
    ("=", "$secondary"),
    ("/", "$error"),
)
"""Each with a sign of its own, for where there are no colours."""
MAX_PIECES = len(PIECES)
LABEL_WIDTH = 9


class Piece(NamedTuple):
    what: str
    num_bytes: int


def pieces_of(ledger: Sequence[LedgerEntry], place: str) -> list[Piece]:
    """What stays of a device's ledger, the largest first; small things together as the last."""
    sums: dict[str, int] = {}
    for entry in ledger:
        if entry.place == place and not entry.is_transient and entry.num_bytes > 0:
            sums[entry.what] = sums.get(entry.what, 0) + entry.num_bytes
    pieces = sorted((Piece(*item) for item in sums.items()), key=lambda piece: -piece.num_bytes)
    if len(pieces) <= MAX_PIECES:
        return pieces
    rest = pieces[MAX_PIECES - 1 :]
    return [*pieces[: MAX_PIECES - 1], Piece("other", sum(piece.num_bytes for piece in rest))]


def ledger_content(plan: Plan, width: int) -> Content:
    """width: characters of a line."""
    parts = []
    for total in plan.totals:
        pieces = pieces_of(plan.ledger, total.place)
        parts += [_bar_line(total, pieces, width), *_legend(pieces, width)]
    return Content("\n").join(parts)


def _bar_line(total: PlaceTotal, pieces: Sequence[Piece], width: int) -> Content:
    free = total.free_bytes
    words = f" {bytes_text(total.num_bytes)} of {'?' if free is None else bytes_text(free)}"
    room = max(8, width - LABEL_WIDTH - len(words))
    is_over = free is not None and total.num_bytes > free
    scale = max(total.num_bytes, free or 0, 1)
    cells = bar_cells([piece.num_bytes for piece in pieces], scale, room)
    bar = [(PIECES[n][0] * count, PIECES[n][1]) for n, count in enumerate(cells)]
    rest = ("·" * max(0, room - sum(cells)), "dim")
    amount = (words, "$error bold" if is_over else "bold")
    return Content.assemble((f"{total.place:<{LABEL_WIDTH}}", "bold"), *bar, rest, amount)


def bar_cells(sizes: Sequence[int], scale: int, width: int) -> list[int]:
    """How many characters each gets: their borders are where they belong, so that rounding does not add up."""
    borders, reached = [0], 0
    for size in sizes:
        reached += size
        borders.append(min(width, round(width * reached / scale)))
    return [after - before for before, after in pairwise(borders)]


def _legend(pieces: Sequence[Piece], width: int) -> list[Content]:
    """As many a line as there is room for."""
    lines, line = [], Content(" " * LABEL_WIDTH)
    for number, piece in enumerate(pieces):
        item = Content.assemble(PIECES[number], f" {piece.what} {bytes_text(piece.num_bytes)}   ")
        if line.cell_length + item.cell_length > width + 3 and line.cell_length > LABEL_WIDTH:
            lines.append(line)
            line = Content(" " * LABEL_WIDTH)
        line = line + item
    return [*lines, line]
