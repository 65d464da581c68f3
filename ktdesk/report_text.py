"""A model report for people, 80 columns wide, and for programs."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from dataclasses import asdict

from ktdesk.json_output import json_text
from ktdesk.model_report import ModelReport, TokenizerFacts
from ktdesk.terminal import on_one_line, without_control
from ktdesk_engine import kernels
from ktdesk_wizard.tensor_classes import TensorGroup

LABEL_WIDTH = 14
MAX_LISTED = 6


def as_text(report: ModelReport, *, with_template: bool) -> str:
    lines = [*_facts(report), "", *_tensors(report), "", *_instruction_set(), *_verdict(report)]
    if with_template and report.template is not None:
        lines += ["", "The chat template:", without_control(report.template.text)]
    return "\n".join(lines)


def to_json(report: ModelReport) -> str:
    facts = {
        "path": str(report.path),
        "shards": [{"path": str(path), "bytes": num_bytes} for path, num_bytes in report.shards],
        "num_bytes": report.num_bytes,
        "gguf_version": report.version,
        "architecture": report.architecture,
        "name": report.name,
        "licence": report.licence,
        "num_parameters": report.num_values,
        "context_length": report.context_length,
        "shapes": {name.replace(" ", "_").replace("/", "_"): value for name, value in report.shapes.items()},
        "tensors": [{**asdict(group), "share": _share(group, report)} for group in report.tensors],
        "tokenizer": _tokenizer_json(report.tokenizer),
        "chat_template": None if report.template is None else asdict(report.template),
        "sampling": None if report.sampling is None else asdict(report.sampling),
        "isa": kernels.default_isa(),
        "no_tiles": kernels.why_no_amx(),
        "runs": report.runs,
        "engine": report.engine,
        "not_by_llamacpp": report.not_by_llamacpp,
        "problems": [asdict(problem) for problem in report.problems],
    }
    return json_text(facts)


def _instruction_set() -> list[str]:
    """What this machine computes with, and why not with tiles."""
    why = kernels.why_no_amx()
    return textwrap.wrap(f"This machine computes with {kernels.default_isa()}{f', for {why}' if why else ''}.", 80)


def _tokenizer_json(facts: TokenizerFacts | None) -> dict[str, object] | None:
    if facts is None:
        return None
    special = {name: {"id": token_id, "text": text} for name, (token_id, text) in facts.special.items()}
    end = [{"id": token_id, "text": text} for token_id, text in facts.end]
    return {**asdict(facts), "special": special, "end": end}


def _facts(report: ModelReport) -> Iterator[str]:
    yield _line("file", str(report.path))
    if len(report.shards) > 1:
        yield _line("shards", str(len(report.shards)))
    yield _line("title", report.name or "(none)")
    yield _line("architecture", f"{report.architecture or '(none)'}, in GGUF version {report.version}")
    if report.licence is not None:
        yield _line("licence", report.licence)
    yield _line("size", f"{_count(report.num_values)} parameters, {bytes_text(report.num_bytes)}")
    if report.context_length is not None:
        yield _line("context", f"{report.context_length:,} tokens")
    yield from _wrapped("shapes", [f"{name} {_shape(value)}" for name, value in report.shapes.items()])
    if report.tokenizer is not None:
        yield from _tokenizer(report.tokenizer)
    if report.template is not None:
        chars = f"{len(report.template.text):,} characters"
        is_ours = report.template.name.startswith("fallback:")
        yield _line("chat template", f"{'none in the file, ' if is_ours else ''}{report.template.name}, {chars}")
    if report.sampling is not None:
        s = report.sampling
        values = f"temperature {s.temperature:g}, top-k {s.top_k}, top-p {s.top_p:g}, min-p {s.min_p:g}"
        yield _line("sampling", values)


def _tokenizer(facts: TokenizerFacts) -> Iterator[str]:
    kind = facts.model if facts.pre is None else f"{facts.model} ({facts.pre})"
    yield _line("tokenizer", f"{kind}, {facts.num_tokens:,} tokens")
    special = [f"{name} {token_id} {text}" for name, (token_id, text) in facts.special.items()]
    yield from _wrapped("", special)
    ends = [f"{token_id} {text}" for token_id, text in facts.end]
    yield from _wrapped("", [f"ends an answer: {ends[0]}", *ends[1:]] if ends else ["no token ends an answer"])


def _tensors(report: ModelReport) -> Iterator[str]:
    yield f"{'tensors':<22}{'type':<10}{'count':>7}{'parameters':>14}{'bytes':>13}{'share':>8}"
    for group in report.tensors:
        yield (
            f"{group.tensor_class:<22}{group.type_name:<10}{group.num_tensors:>7,}{_count(group.num_values):>14}"
            f"{bytes_text(group.num_bytes):>13}{_share(group, report):>8.1%}"
        )


def _verdict(report: ModelReport) -> Iterator[str]:
    if report.engine == "ktdesk":
        yield "It runs."
        return
    if report.engine == "llamacpp":
        yield "It runs on llama.cpp, without what only ktdesk's own engine has (docs/llamacpp.md); for that one:"
    else:
        yield "It does not run:"
    for problem in report.problems:
        yield f"- {problem.part}: {on_one_line(problem.message)} (exit code {problem.exit_code:d})"
    if report.not_by_llamacpp is not None:
        yield f"- {on_one_line(report.not_by_llamacpp)}"


def _line(label: str, value: str) -> str:
    return f"{label:<{LABEL_WIDTH}}{on_one_line(value)}"


def _wrapped(label: str, items: list[str], width: int = 80) -> Iterator[str]:
    """Items with commas between them, over as many lines as they need."""
    line = ""
    for item in map(on_one_line, items):
        if line and LABEL_WIDTH + len(line) + 2 + len(item) > width:
            yield f"{label:<{LABEL_WIDTH}}{line},"
            label, line = "", ""
        line = f"{line}, {item}" if line else item
    if line:
        yield f"{label:<{LABEL_WIDTH}}{line}"


def _shape(value: int | list[int]) -> str:
    if isinstance(value, int):
        return str(value)
    if len(set(value)) == 1:
        return str(value[0])
    return f"{' '.join(map(str, value[:MAX_LISTED]))}{' ...' if len(value) > MAX_LISTED else ''}"


def _share(group: TensorGroup, report: ModelReport) -> float:
    return group.num_bytes / sum(other.num_bytes for other in report.tensors)


def _count(number: int) -> str:
    for unit, size in (("T", 10**12), ("B", 10**9), ("M", 10**6), ("K", 10**3)):
        if number >= size:
            return f"{number / size:.2f} {unit}"
    return str(number)


def bytes_text(number: int) -> str:
    for unit, size in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if number >= size:
            return f"{number / size:.1f} {unit}"
    return f"{number} B"
