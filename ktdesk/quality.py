"""`ktdesk eval`: one model, read in several ways, and how far each is from the exact one."""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from ktdesk.amounts import counted
from ktdesk.errors import UsageError
from ktdesk.eval_files import check_experts, check_one_model
from ktdesk.eval_journal import EvalJournal
from ktdesk.eval_variants import Variant
from ktdesk.json_output import json_text
from ktdesk.loading import loaded_engine
from ktdesk.options import EngineOptions
from ktdesk.terminal import Progress, on_one_line
from ktdesk_engine.config import EngineConfig
from ktdesk_engine.engine import Engine
from ktdesk_engine.evaluation import Quality, WindowResult, compare, fold, windows_of
from ktdesk_profiles.evaluation_text import TEXT_FILE, load_evaluation_text

MIN_TOKENS = 2
"""One to predict, and one to predict it from."""


@dataclass(frozen=True)
class Text:
    name: str
    content: str


@dataclass(frozen=True)
class Report:
    model: Path
    text: str
    num_tokens: int
    """Of the text, as far as it was read."""
    window: int
    reference: EngineConfig
    tested: EngineConfig
    quality: Quality
    seconds: float
    """Without loading."""


def read_text(file: Path | None) -> Text:
    """None: the text that ships."""
    if file is None:
        return Text(f"{TEXT_FILE} of ktdesk", load_evaluation_text())
    try:
        data = file.read_bytes()
    except OSError as error:
        raise UsageError(f"--text {file}: {error.strerror or error}") from error
    try:
        return Text(str(file), data.decode("utf-8"))
    except UnicodeDecodeError as error:
        where = f"byte {data[error.start]:#04x} at {error.start:,}"
        raise UsageError(f"--text {file} is not UTF-8: {where}; convert it with iconv") from None


def measure(
    variants: Sequence[Variant], text: Text, window: int, max_tokens: int | None, resume: Path | None = None
) -> list[Report]:
    """Reads the text exactly and as each variant says, window by window in turn. Exactly: the first one's file.

    The exact path leaves its weights in the file, so that memory holds one copy of them. resume: a file that keeps
    what was measured, for a run that is stopped.
    """
    first = variants[0]
    check_one_model([variant.path for variant in variants])
    check_experts(variants)
    exact = replace(EngineOptions(), compute="float32", threads=first.options.threads)
    with loaded_engine(first.path, exact, Engine.load) as reference:
        windows, num_tokens = _windows(reference, text, window, max_tokens)
        journal = EvalJournal(resume, _asked(first.path, text, window, num_tokens))
        return [
            _report(variant, len(variants) > 1, reference, windows, num_tokens, text, window, journal)
            for variant in variants
        ]


def _asked(path: Path, text: Text, window: int, num_tokens: int) -> dict[str, Any]:
    """What stored results hold for."""
    digest = hashlib.sha256(text.content.encode()).hexdigest()
    return {
        "model": path.name,
        "bytes": path.stat().st_size,
        "text": digest,
        "window": window,
        "num_tokens": num_tokens,
    }


def _report(
    variant: Variant,
    is_one_of_several: bool,
    reference: Engine,
    windows: Sequence[Sequence[int]],
    num_tokens: int,
    text: Text,
    window: int,
    journal: EvalJournal,
) -> Report:
    with loaded_engine(variant.path, variant.options, Engine.load) as tested:
        started = time.perf_counter()
        key = f"{variant.path.name}: {variant.name}, {tested.config.isa}"
        results = list(
            _with_progress(
                _compared(reference, tested, windows, journal, key),
                len(windows),
                f" as {variant.name}" if is_one_of_several else "",
            )
        )
        seconds = time.perf_counter() - started
        quality = fold(results)
        return Report(variant.path, text.name, num_tokens, window, reference.config, tested.config, quality, seconds)


def _compared(
    reference: Engine, tested: Engine, windows: Sequence[Sequence[int]], journal: EvalJournal, key: str
) -> Iterator[WindowResult]:
    """What the journal has is not computed again."""
    for number, token_ids in enumerate(windows):
        result = journal.get((key, number))
        if result is None:
            result = compare(reference.score(token_ids), tested.score(token_ids), token_ids)
            journal.add((key, number), result)
        yield result


def _windows(engine: Engine, text: Text, window: int, max_tokens: int | None) -> tuple[Sequence[Sequence[int]], int]:
    """And how many tokens of the text they hold."""
    if window > engine.context:
        raise UsageError(f"--window {window}: the context is {engine.context} tokens; ask for at most that")
    tokenizer = engine.tokenizer
    ids = tokenizer.encode(text.content, add_bos=False)[:max_tokens]
    if len(ids) < MIN_TOKENS:
        few = "is empty" if not ids else f"has {len(ids)} token"
        raise UsageError(f"the text {text.name} {few}: give at least {MIN_TOKENS} tokens, better some thousand")
    return windows_of(ids, window, tokenizer.bos_id if tokenizer.adds_bos else None), len(ids)


def _with_progress(results: Iterator[WindowResult], num_windows: int, how: str) -> Iterator[WindowResult]:
    """The results, with how far it is and what was found so far on standard error."""
    progress = Progress()
    started = time.monotonic()
    kl_sum, num_positions = 0.0, 0
    progress.step(f"Comparing {counted(num_windows, 'window')}{how}")
    try:
        for done, result in enumerate(results, start=1):
            kl_sum += float(result.kl.sum())
            num_positions += result.num_positions
            seconds_left = (time.monotonic() - started) / done * (num_windows - done)
            progress.tell(f"{done / num_windows:4.0%}, mean KL {kl_sum / num_positions:.2g}, {seconds_left:.0f} s left")
            yield result
    finally:
        progress.erase()


def to_json(reports: Sequence[Report]) -> str:
    """Of one, its facts; of several, a list of them."""
    facts = [report_facts(report) for report in reports]
    return json_text(facts[0] if len(facts) == 1 else {"variants": facts})


def report_facts(report: Report) -> dict[str, Any]:
    """JSON has no infinity: a perplexity beyond all numbers is null."""
    quality = {
        name: None if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in asdict(report.quality).items()
    }
    return {
        "model": str(report.model),
        "text": report.text,
        "num_tokens": report.num_tokens,
        "window": report.window,
        "compute": report.tested.compute,
        "cache_type": report.tested.cache_type,
        "defer": report.tested.defer,
        "experts_used": report.tested.experts_used,
        "isa": report.tested.isa,
        "num_threads": report.tested.num_threads,
        "reference_compute": report.reference.compute,
        "reference_isa": report.reference.isa,
        **quality,
        "seconds": report.seconds,
    }


def as_table(reports: Sequence[Report]) -> str:
    """Several, one a line, for people."""
    first = reports[0]
    head = ("file", "how", "perplexity", "mean KL", "99th pct.", "same likeliest")
    rows = [head, *(_row(report) for report in reports)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(head))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    exact = first.quality.reference_perplexity
    return "\n".join(
        [
            f"{on_one_line(first.text)}: {first.num_tokens:,} tokens in {_windows_text(first)}; against "
            f"{on_one_line(first.model.name)} computed exactly, perplexity {exact:.4f}",
            *lines,
        ]
    )


def _windows_text(report: Report) -> str:
    count = report.quality.num_windows
    return "one window" if count == 1 else f"{count} windows of {report.window}"


def _row(report: Report) -> tuple[str, ...]:
    q, how = report.quality, report.tested
    parts = [how.compute, f"cache {how.cache_type}"]
    if how.defer:
        parts.append(f"{how.defer} deferred")
    if how.experts_used is not None:
        parts.append(f"{how.experts_used} experts")
    return (
        on_one_line(report.model.name),
        ", ".join(parts),
        f"{q.perplexity:.4f}",
        f"{_figure(q.mean_kl)}{_plus_minus(q.mean_kl_error, _figure)}",
        _figure(q.p99_kl),
        f"{q.top1:.2%}",
    )


def as_text(report: Report) -> str:
    """For people. Behind a plus-minus stands the standard error over the windows."""
    q = report.quality
    how = f"{report.tested.compute}{_lossy(report.tested)} on {report.tested.isa}"
    lines = {
        "Model": f"{on_one_line(str(report.model))}: {how}, against exact",
        "Text": f"{on_one_line(report.text)}: {report.num_tokens:,} tokens in {_windows_text(report)}, "
        f"{report.seconds:.0f} s",
        "Perplexity": f"{q.perplexity:.4f}, exact {q.reference_perplexity:.4f}",
        "KL divergence": f"mean {_figure(q.mean_kl)}{_plus_minus(q.mean_kl_error, _figure)}, "
        f"99th percentile {_figure(q.p99_kl)}, largest {_figure(q.max_kl)} nats",
        "Same likeliest": f"{q.top1:.2%}{_plus_minus(q.top1_error, '{:.2%}'.format)} of {q.num_positions:,} positions",
    }
    return "\n".join(f"{name + ':':<15} {value}" for name, value in lines.items())


def _lossy(config: EngineConfig) -> str:
    """What else changes answers."""
    deferred = f", {config.defer} deferred" if config.defer else ""
    return deferred + ("" if config.experts_used is None else f", {config.experts_used} experts a token")


def _plus_minus(error: float | None, show: Callable[[float], str]) -> str:
    return "" if error is None else f" ± {show(error)}"


def _figure(value: float) -> str:
    """Two digits at least, however small."""
    return f"{value:.4f}" if value == 0 or value >= 0.01 else f"{value:.2g}"
