"""What the app costs, as text for people."""

from __future__ import annotations

from ktdesk.amounts import bytes_text
from ktdesk.ui_benchmark.measuring import NUM_MESSAGES, UiReport


def as_text(report: UiReport) -> str:
    rows = [
        ("first picture", f"{report.first_picture_seconds:.2f} s", "after the process began"),
        ("streaming", f"{report.stream_cpu_share:.1%}", f"of one core, at {report.tok_s:g} tokens/s of Markdown"),
        ("idle", f"{report.idle_cpu_share:.1%}", "of one core"),
        ("to the terminal", f"{bytes_text(report.terminal_bytes_s)}/s", "while streaming"),
        (f"open {NUM_MESSAGES} messages", f"{report.open_seconds:.2f} s", "from the key to the last words"),
        ("one page up", f"{report.page_median_ms:.0f} ms", f"median; the slowest {report.page_slowest_ms:.0f} ms"),
        ("memory", bytes_text(report.memory_bytes), "at the end"),
    ]
    width = max(len(name) for name, _, _ in rows)
    lines = [f"The app in a terminal of {report.columns} x {report.rows}:"]
    return "\n".join([*lines, *(f"  {name:<{width}}  {value:>10}  {rest}" for name, value, rest in rows)])
