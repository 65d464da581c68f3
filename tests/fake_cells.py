"""llama.cpp without llama.cpp: cells that sequences share, and a model that remembers what is in them.

As strict as the library: positions of a sequence go on where they end, and there is a cell for every token or none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from fake_runner import POISON, VOCAB_SIZE, FakeClock, next_token

from ktdesk_engine.errors import EngineError
from ktdesk_engine.kernels import Floats


@dataclass
class Cell:
    token_id: int
    position: int
    sequences: set[int]


class FakeCells:
    def __init__(self, num_cells: int, clock: FakeClock, *, can_cut: bool = True) -> None:
        """can_cut: whether a part of a sequence can be removed."""
        self._num_cells = num_cells
        self._clock = clock
        self._can_cut = can_cut
        self.cells: list[Cell] = []
        self.num_computed = 0

    def compute(
        self, sequences: Sequence[int], token_ids: Sequence[int], positions: Sequence[int], rows: Sequence[int]
    ) -> Floats:
        self._clock.now += 0.01 + 0.001 * len(token_ids)
        if len(self.cells) + len(token_ids) > self._num_cells:
            raise EngineError("there are no cells")
        before = {sequence: self.tokens(sequence) for sequence in set(sequences)}
        logits = np.zeros((len(rows), VOCAB_SIZE), np.float32)
        for t, (sequence, token_id, position) in enumerate(zip(sequences, token_ids, positions, strict=True)):
            assert position == len(before[sequence]), "positions must be consecutive"
            before[sequence].append(token_id)
            self.cells.append(Cell(token_id, position, {sequence}))
            if POISON in before[sequence]:
                raise EngineError("the values are not finite")
            if t in rows:
                logits[list(rows).index(t), next_token(before[sequence])] = 1
        self.num_computed += len(token_ids)
        return logits

    def tokens(self, sequence: int) -> list[int]:
        """Of a sequence, in order; each position is there once."""
        cells = sorted((cell for cell in self.cells if sequence in cell.sequences), key=lambda cell: cell.position)
        assert [cell.position for cell in cells] == list(range(len(cells)))
        return [cell.token_id for cell in cells]

    def copy(self, source: int, target: int, begin: int, end: int) -> None:
        for cell in self.cells:
            if source in cell.sequences and begin <= cell.position < end:
                cell.sequences.add(target)

    def remove(self, sequence: int, begin: int = 0, end: int = -1) -> None:
        positions = [cell.position for cell in self.cells if sequence in cell.sequences]
        is_cut = begin > 0 and begin <= max(positions, default=-1)
        for cell in self.cells:
            inside = begin <= cell.position and (end < 0 or cell.position < end)
            if inside or (is_cut and not self._can_cut):
                cell.sequences.discard(sequence)
        self.cells = [cell for cell in self.cells if cell.sequences]
        if is_cut and not self._can_cut:
            raise EngineError("a state cannot be cut")
