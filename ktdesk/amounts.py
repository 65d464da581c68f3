"""Numbers with their units, as people read them."""

from __future__ import annotations


def bytes_text(number: float) -> str:
    for unit, size in (("TiB", 2**40), ("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if number >= size:
            return f"{number / size:.1f} {unit}"
    return f"{number:.0f} B"


def speed_text(bytes_s: float) -> str:
    return f"{bytes_s / 1e9:,.1f} GB/s" if bytes_s >= 1e9 else f"{bytes_s / 1e6:,.0f} MB/s"


def counted(number: int, noun: str) -> str:
    """Such as `1 answer` and `2,000 answers`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
