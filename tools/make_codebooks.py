"""Writes engine/ktdesk_engine/quants/codebooks/*.csv: the codebooks of the IQ formats.

They are constants of the GGUF format, found by their authors by optimisation, so no formula gives them. The
numbers come from the gguf package. Each file is a list of 16-bit entries that a C array initializer can
include and Python can split: 8 level numbers of 2 bits (IQ1, IQ2) or 4 of 3 bits (IQ3), lowest first.

Usage: python tools/make_codebooks.py
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from gguf import quants

FOLDER = Path(__file__).parents[1] / "engine" / "ktdesk_engine" / "codebooks"
BOOKS = {
    "iq1": quants.IQ1_S,
    "iq2_xxs": quants.IQ2_XXS,
    "iq2_xs": quants.IQ2_XS,
    "iq2_s": quants.IQ2_S,
    "iq3_xxs": quants.IQ3_XXS,
    "iq3_s": quants.IQ3_S,
}
PER_LINE = 16


def entries_of(grid: np.ndarray, levels: tuple[int, ...]) -> list[int]:
    """grid: (entries, 8 or 4) values, each one of `levels` -> the packed entries."""
    bits = 2 if grid.shape[1] == 8 else 3
    numbers = np.searchsorted(levels, grid)
    return [int(entry) for entry in (numbers << np.arange(grid.shape[1]) * bits).sum(axis=1)]


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for name, source in BOOKS.items():
        source.init_grid()
        words = [f"0x{entry:04x}" for entry in entries_of(source.grid[0, 0], source.grid_map)]
        lines = [", ".join(words[i : i + PER_LINE]) for i in range(0, len(words), PER_LINE)]
        (FOLDER / f"{name}.csv").write_text(",\n".join(lines) + "\n", encoding="ascii")
        print(f"{name}: {len(words)} entries")


if __name__ == "__main__":
    main()
