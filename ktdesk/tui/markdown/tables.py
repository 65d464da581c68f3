"""Tables that fit their width: columns as wide as what is in them, the widest shrunk where there is no room. Where
even that would leave too little of each, a line for each cell."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len
from rich.segment import Segment

from ktdesk.tui.markdown.styles import MarkdownStyles
from ktdesk.tui.markdown.wrapping import Piece, cells_of, wrap

MIN_COLUMN, READABLE_COLUMN = 3, 6
Cell = list[Piece]


def table_lines(
    rows: Sequence[Sequence[Cell]], aligns: Sequence[str], width: int, styles: MarkdownStyles
) -> list[list[Segment]]:
    """The first row is the head. aligns: left, right or center, a column each."""
    num_columns = max((len(row) for row in rows), default=0)
    if not num_columns:
        return []
    room = width - 3 * (num_columns - 1)
    if sum(min(column, READABLE_COLUMN) for column in _natural_widths(rows, num_columns)) > room:
        return _record_lines(rows, width, styles)
    widths = column_widths(rows, num_columns, room)
    bar = Segment(" │ ", styles.faint)
    lines: list[list[Segment]] = []
    for number, row in enumerate(rows):
        lines += _row_lines(row, widths, aligns, bar)
        if number == 0:
            lines.append([Segment("─┼─".join("─" * column for column in widths), styles.faint)])
    return lines


def column_widths(rows: Sequence[Sequence[Cell]], num_columns: int, room: int) -> list[int]:
    """In cells. Where the room is too small for MIN_COLUMN each, the table is wider than it."""
    natural = _natural_widths(rows, num_columns)
    excess = sum(natural) - room
    while excess > 0 and max(natural) > MIN_COLUMN:
        widest = max(natural)
        next_widest = max((column for column in natural if column < widest), default=MIN_COLUMN)
        columns = [index for index, column in enumerate(natural) if column == widest]
        step = min(widest - max(next_widest, MIN_COLUMN), -(-excess // len(columns)))
        for index in columns:
            natural[index] -= step
        excess = sum(natural) - room
    return natural


def _natural_widths(rows: Sequence[Sequence[Cell]], num_columns: int) -> list[int]:
    natural = [MIN_COLUMN] * num_columns
    for row in rows:
        for index, cell in enumerate(row):
            text = "".join(piece for piece, _ in cell)
            natural[index] = max(natural[index], max(map(cell_len, text.split("\n")), default=0))
    return natural


def _record_lines(rows: Sequence[Sequence[Cell]], width: int, styles: MarkdownStyles) -> list[list[Segment]]:
    """Each cell behind the head of its column, rows parted by a rule."""
    head, *records = rows
    lines: list[list[Segment]] = []
    for record in records or [[]]:
        if lines:
            lines.append([Segment("─" * width, styles.faint)])
        for index, name in enumerate(head):
            cell = record[index] if index < len(record) else []
            lines += wrap([*name, (": ", styles.faint), *cell], width)
    return lines


def _row_lines(row: Sequence[Cell], widths: Sequence[int], aligns: Sequence[str], bar: Segment) -> list[list[Segment]]:
    cells: list[list[list[Segment]]] = [
        wrap(row[index], column) if index < len(row) else [[]] for index, column in enumerate(widths)
    ]
    lines = []
    for line in range(max(map(len, cells))):
        segments: list[Segment] = []
        for index, column in enumerate(widths):
            part = cells[index][line] if line < len(cells[index]) else []
            segments += [bar] * bool(index) + _aligned(part, column, aligns[index] if index < len(aligns) else "left")
        lines.append(segments)
    return lines


def _aligned(segments: list[Segment], column: int, align: str) -> list[Segment]:
    room = max(0, column - cells_of(segments))
    before = {"right": room, "center": room // 2}.get(align, 0)
    return [Segment(" " * before), *segments, Segment(" " * (room - before))]
