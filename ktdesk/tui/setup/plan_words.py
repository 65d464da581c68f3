"""A plan in words: its verdict, speeds as intervals, what lies where, and what was decided against."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from textual.content import Content

from ktdesk.amounts import bytes_text
from ktdesk.tui.markdown.harmless import harmless
from ktdesk.tui.setup.own_words import own_words

if TYPE_CHECKING:
    from ktdesk_wizard.plan.plan import Plan, Prediction, Rejected
    from ktdesk_wizard.plan.wishes import Wishes

LABEL_WIDTH = 12
VERDICT_STYLES = {
    "fits": "$success bold",
    "fits if you free memory": "$warning bold",
    "does not fit": "$error bold",
    "unknown": "bold",
}


def head_content(plan: Plan) -> Content:
    about = "about " if plan.is_estimate else ""
    title = f"{harmless(plan.model)}, {plan.quantization}, {about}{bytes_text(plan.file_bytes)}"
    verdict = plan.verdict
    lines = [
        Content.styled(title, "bold"),
        Content.assemble((verdict.kind, VERDICT_STYLES[verdict.kind]), f": {harmless(own_words(verdict.message))}"),
    ]
    if verdict.change:
        lines.append(_line("would fit", f"with {harmless(own_words(verdict.change))}"))
    return Content("\n").join(lines)


def speed_content(plan: Plan) -> Content:
    lines = [
        _line("Prompts", speed_words(plan.prefill)),
        _line("Answers", speed_words(plan.decode)),
        _line("full context", speed_words(plan.decode_deep)),
        *(_line("Placement" if not number else "", line) for number, line in enumerate(placement_lines(plan))),
    ]
    return Content("\n").join(lines)


def speed_words(prediction: Prediction) -> str:
    low, high = prediction.min_tok_s, prediction.max_tok_s
    if low is None or high is None or prediction.tok_s is None:
        return harmless(own_words(prediction.basis))
    limit = f", limited by {prediction.limiting_lane}" if prediction.limiting_lane else ""
    digits = 0 if high >= 20 else 1
    return f"{low:,.{digits}f} to {high:,.{digits}f} tok/s, likely {prediction.tok_s:,.{digits}f}{limit}"


def placement_lines(plan: Plan) -> list[str]:
    lines = [f"{plan.num_threads} threads, {plan.isa}, compute {plan.compute}; cache in {plan.cache_type}"]
    if len(plan.nodes) > 1:
        lines += [
            f"node {share.node}: {share.num_threads} threads, {bytes_text(share.weight_bytes)} of weights"
            for share in plan.nodes
        ]
    lines += [f"card {part.gpu}: {part.text}" for part in plan.gpu_parts]
    return lines


def alternatives_content(rejected: Sequence[Rejected]) -> Content:
    lines = [Content.assemble((harmless(each.what), "bold"), f": {harmless(own_words(each.why))}") for each in rejected]
    return Content("\n").join(lines)


def quality_content(plan: Plan, wishes: Wishes, data_folder: Path | None) -> list[Content]:
    """What answers of a file lose by the way that they are computed, or how to measure it. Nothing where nothing is
    known or changed."""
    from ktdesk.quality_figures import load_figures, words_of

    file = Path(plan.source)
    if data_folder is None or not file.is_file():
        return []
    words = words_of(load_figures(data_folder, file), plan.source, wishes.compute, wishes.cache_type)
    return [_line("quality", harmless(words))] if words else []


def notes_content(plan: Plan) -> Content:
    return Content.styled("\n".join(f"{harmless(own_words(note))}." for note in plan.notes), "$warning")


def _line(label: str, value: str) -> Content:
    return Content.assemble((f"{label:<{LABEL_WIDTH}} ", "$foreground 75%"), value)
