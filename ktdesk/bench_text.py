"""A report of `ktdesk bench` for people."""

from __future__ import annotations

from collections.abc import Iterator

from ktdesk.amounts import counted
from ktdesk.bench_report import BenchReport, Comparison
from ktdesk.terminal import on_one_line
from ktdesk_engine.benchmark.samples import Row, Spread

LABEL_WIDTH = 10
COLUMNS = (20, 9, 22, 7, 14, 8, 14, 9)
"""Widths; the first is filled up on its right."""


def as_text(report: BenchReport, comparison: Comparison | None = None) -> str:
    lines = [*_head(report), "", *_table(report)]
    if comparison is not None:
        lines += ["", *_against(comparison)]
    warning = busy_warning(report)
    return "\n".join(lines if warning is None else [*lines, "", warning])


def busy_warning(report: BenchReport) -> str | None:
    load = report.load
    if not load.is_busy:
        return None
    return (
        f"warning: the machine was busy: others used {load.other_cores:.1f} of {report.machine.num_cores} cores, the "
        f"hypervisor took {load.stolen_cores:.1f}, load average {load.load_average:.1f}"
    )


def _head(report: BenchReport) -> Iterator[str]:
    yield _line("measured", report.subject)
    for note in report.notes:
        yield _line("", note)
    machine = report.machine
    yield _line("machine", f"{machine.cpu}, {machine.num_cores} cores, {machine.memory_bytes / 2**30:.1f} GiB")
    yield _line(
        "run",
        f"{report.isa}, {counted(report.threads, 'thread')}, {report.compute}, {counted(report.repeat, 'sample')}, "
        f"{report.date}",
    )
    peaks = [f"{name} {_spread(peak, 1e12, 2)} TOPS" for name, peak in report.peak_ops_s.items()]
    yield _line("ceilings", ", ".join([f"read {_spread(report.read_bytes_s, 1e9, 1)} GB/s", *peaks]))


def _table(report: BenchReport) -> Iterator[str]:
    yield _cells(("", "ms", "tok/s", "GB/s", "of read", "TOPS", "of peak", "x floor"))
    for row in report.rows:
        yield _cells(_row(row))


def _row(row: Row) -> tuple[str, ...]:
    return (
        row.name,
        f"{row.step_seconds.median * 1e3:.2f}",
        _spread(row.tok_s, 1, 1),
        f"{row.read_bytes_s.median / 1e9:.1f}",
        _share(row.read_share),
        f"{row.ops_s.median / 1e12:.3f}",
        _share(row.peak_share),
        f"{row.times_floor.median:.2f}",
    )


def _against(comparison: Comparison) -> Iterator[str]:
    yield f"against {on_one_line(str(comparison.path))} of {on_one_line(comparison.date)}"
    for difference in comparison.differences:
        yield f"  not the same: {on_one_line(difference)}"
    for ratio in comparison.ratios:
        yield (
            f"  {ratio.name:<20}tok/s x {ratio.tok_s:.2f}, share of read x {ratio.read_share:.2f}, "
            f"of peak x {ratio.peak_share:.2f}"
        )
    for name in comparison.missing:
        yield f"  {name:<20}not there"


def _cells(cells: tuple[str, ...]) -> str:
    first, *rest = zip(cells, COLUMNS, strict=True)
    # A cell that is wider than its column still stands apart from the one before it.
    return f"{first[0]:<{first[1]}}" + "".join(f" {cell:>{width - 1}}" for cell, width in rest)


def _line(label: str, value: str) -> str:
    return f"{label:<{LABEL_WIDTH}}{on_one_line(value)}"


def _spread(spread: Spread, unit: float, digits: int) -> str:
    """median (minimum..maximum)"""
    median, low, high = (value / unit for value in (spread.median, spread.minimum, spread.maximum))
    return f"{median:.{digits}f} ({low:.{digits}f}..{high:.{digits}f})"


def _share(spread: Spread) -> str:
    return f"{spread.median:.0%} ({100 * spread.minimum:.0f}..{100 * spread.maximum:.0f})"
