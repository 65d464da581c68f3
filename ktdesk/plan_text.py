"""A plan for people, 80 columns wide where it can be."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from textwrap import wrap

from ktdesk.amounts import bytes_text
from ktdesk.terminal import on_one_line
from ktdesk_wizard.plan.offers import Offer
from ktdesk_wizard.plan.plan import MEMORY, Plan, Prediction
from ktdesk_wizard.plan.ways import Way

LABEL_WIDTH = 14
WIDTH = 80
UNKNOWN = "unknown"


def as_text(plan: Plan, *, explain: bool, name: str | None = None) -> str:
    """explain: with the formula behind each number, the lanes of the speeds, and what was decided against. name: what
    commands call it, of a file here."""
    parts = [_head(plan, name), _ledger(plan, explain), _totals(plan), _speeds(plan, explain), _remarks(plan, explain)]
    return "\n\n".join("\n".join(lines) for part in parts if (lines := list(part)))


def offers_text(offers: Sequence[Offer], chosen: str) -> str:
    """A line a quantization, the planned one marked."""
    width = max(len(offer.offered.quantization) for offer in offers) + 2
    lines = [f"  {'offered':<{width}}{'file':>10}{'memory':>11}  {'decode tok/s':<15}verdict"]
    for offer in offers:
        name, size = offer.offered.quantization, bytes_text(offer.offered.num_bytes)
        memory, decode = bytes_text(offer.plan.bytes_of(MEMORY)), offer.plan.decode
        speed = UNKNOWN
        if decode.min_tok_s is not None and decode.max_tok_s is not None:
            speed = f"{_number(decode.min_tok_s)} to {_number(decode.max_tok_s)}"
        mark = "> " if name == chosen else "  "
        lines.append(on_one_line(f"{mark}{name:<{width}}{size:>10}{memory:>11}  {speed:<15}{offer.plan.verdict.kind}"))
    return "\n".join(lines)


def _head(plan: Plan, name: str | None) -> Iterator[str]:
    yield _line("model", f"{plan.model} ({plan.architecture})")
    if name is not None:
        yield _line("name", name)
    about = "about " if plan.is_estimate else ""
    yield _line("file", f"{plan.source}, {plan.quantization}, {about}{bytes_text(plan.file_bytes)}")
    yield _line("verdict", f"{plan.verdict.kind}: {plan.verdict.message}")
    if plan.verdict.change:
        yield _line("it would fit", f"with {plan.verdict.change}")
    sequences = f" for each of {plan.num_sequences}" if plan.num_sequences > 1 else ""
    yield _line("context", f"{plan.context:,} tokens{sequences}, cache in {plan.cache_type}")
    yield _line("threads", f"{plan.num_threads}, {plan.isa}, compute {plan.compute}")
    if len(plan.nodes) > 1:
        for share in plan.nodes:
            of_weights = f"{share.num_threads} threads, {bytes_text(share.weight_bytes)} of weights"
            free = "" if share.free_bytes is None else f", {bytes_text(share.free_bytes)} free"
            yield _line(f"  node {share.node}", f"{of_weights}{free}")
    for part in plan.gpu_parts:
        yield _line(f"  card {part.gpu}", part.text)


def _ledger(plan: Plan, explain: bool) -> Iterator[str]:
    names = [entry.what + (" (while loading)" if entry.is_transient else "") for entry in plan.ledger]
    width = max(map(len, names), default=0)
    yield f"{'where':<9}{'what':<{width}}{'bytes':>12}" + ("  how" if explain else "")
    for entry, name in zip(plan.ledger, names, strict=True):
        line = f"{entry.place:<9}{name:<{width}}{bytes_text(entry.num_bytes):>12}"
        yield f"{line}  {entry.formula}" if explain else line


def _totals(plan: Plan) -> Iterator[str]:
    for total in plan.totals:
        free = "unknown" if total.free_bytes is None else bytes_text(total.free_bytes)
        yield _line(total.place, f"{bytes_text(total.num_bytes)} at the most, of {free} available")


def _speeds(plan: Plan, explain: bool) -> Iterator[str]:
    for prediction in (plan.prefill, plan.decode, plan.decode_deep):
        yield f"{prediction.what:<32}{_speed(prediction)}"
        if explain:
            for lane in prediction.lanes:
                times = f"{lane.min_seconds * 1e3:,.1f} to {lane.max_seconds * 1e3:,.1f} ms"
                yield f"  {lane.name:<14}{lane.amount}: {times}"
            if prediction.correction:
                yield f"  corrected: {prediction.correction}"
    unknown = [p.basis for p in (plan.prefill, plan.decode, plan.decode_deep) if p.tok_s is None]
    if unknown:  # the first names all that the others lack, and what to do is the same
        yield from filled(f"{unknown[0][:1].upper()}{unknown[0][1:]}.")
    if plan.decode.lanes:
        yield from filled(f"From: {plan.decode.basis}.")


def ways_text(ways: Sequence[Way]) -> str:
    """A line a way to compute."""
    lines = [f"{'compute':<9}{'memory':>12}{'prefill':>14}{'decode':>14}"]
    for way in ways:
        speeds = (way.prefill_tok_s, way.decode_tok_s)
        texts = [UNKNOWN if tok_s is None else f"{_number(tok_s)} tok/s" for tok_s in speeds]
        lines.append(f"{way.compute:<9}{bytes_text(way.memory_bytes):>12}{texts[0]:>14}{texts[1]:>14}")
    return "\n".join(lines)


def _speed(prediction: Prediction) -> str:
    if prediction.tok_s is None or prediction.min_tok_s is None or prediction.max_tok_s is None:
        return UNKNOWN
    interval = f"{_number(prediction.min_tok_s)} to {_number(prediction.max_tok_s)}"
    return f"{_number(prediction.tok_s)} tok/s ({interval}), limited by {prediction.limiting_lane}"


def _number(tok_s: float) -> str:
    return f"{tok_s:,.0f}" if tok_s >= 100 else f"{tok_s:.1f}"


def _remarks(plan: Plan, explain: bool) -> Iterator[str]:
    for note in plan.notes:
        yield from filled(f"Note: {note}.")
    if explain:
        for rejected in plan.rejected:
            yield from filled(f"Not {rejected.what}: {rejected.why}.")
    if plan.verdict.kind != "does not fit":
        yield f"Run it with: {shlex.join(plan.command)}"


def _line(label: str, value: str) -> str:
    return "\n".join(filled(f"{label:<{LABEL_WIDTH}}{value}", " " * LABEL_WIDTH))


def filled(text: str, indent: str = "  ") -> list[str]:
    """Names and paths stay whole."""
    return wrap(on_one_line(text), WIDTH, subsequent_indent=indent, break_on_hyphens=False, break_long_words=False)
