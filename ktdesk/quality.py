"""`ktdesk eval`: one model, read in two ways, and how far they are apart."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from ktdesk.errors import UsageError
from ktdesk.json_output import json_text
from ktdesk.loading import loaded_engine
from ktdesk.options import EngineOptions
from ktdesk.terminal import Progress, on_one_line
from ktdesk_engine.config import EngineConfig
from ktdesk_engine.engine import Engine
from ktdesk_engine.evaluation import Quality, WindowResult, evaluate, fold, windows_of
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


def measure(path: Path, text: Text, options: EngineOptions, window: int, max_tokens: int | None) -> Report:
    """Reads the text exactly and as options say, window by window in turn.

    The exact path leaves its weights in the file, so that memory holds one copy of them.
    """
    exact = replace(options, compute="float32", isa=None, context=None, cache_type=None)
    with loaded_engine(path, exact, Engine.load) as reference:
        windows, num_tokens = _windows(reference, text, window, max_tokens)
        with loaded_engine(path, options, Engine.load) as tested:
            started = time.perf_counter()
            results = list(_with_progress(evaluate(reference.score, tested.score, windows), len(windows)))
            seconds = time.perf_counter() - started
            return Report(path, text.name, num_tokens, window, reference.config, tested.config, fold(results), seconds)


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


def _with_progress(results: Iterator[WindowResult], num_windows: int) -> Iterator[WindowResult]:
    """The results, with how far it is and what was found so far on standard error."""
    progress = Progress()
    started = time.monotonic()
    kl_sum, num_positions = 0.0, 0
    progress.step(f"Comparing {num_windows} windows")
    try:
        for done, result in enumerate(results, start=1):
            kl_sum += float(result.kl.sum())
            num_positions += result.num_positions
            seconds_left = (time.monotonic() - started) / done * (num_windows - done)
            progress.tell(f"{done / num_windows:4.0%}, mean KL {kl_sum / num_positions:.2g}, {seconds_left:.0f} s left")
            yield result
    finally:
        progress.erase()


def to_json(report: Report) -> str:
    """JSON has no infinity: a perplexity beyond all numbers is null."""
    quality = {
        name: None if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in asdict(report.quality).items()
    }
    facts = {
        "model": str(report.model),
        "text": report.text,
        "num_tokens": report.num_tokens,
        "window": report.window,
        "compute": report.tested.compute,
        "isa": report.tested.isa,
        "num_threads": report.tested.num_threads,
        "reference_compute": report.reference.compute,
        "reference_isa": report.reference.isa,
        **quality,
        "seconds": report.seconds,
    }
    return json_text(facts)


def as_text(report: Report) -> str:
    """For people. Behind a plus-minus stands the standard error over the windows."""
    q = report.quality
    windows = f"{q.num_windows} {'window' if q.num_windows == 1 else 'windows'} of {report.window}"
    lines = {
        "Model": f"{on_one_line(str(report.model))}: {report.tested.compute} on {report.tested.isa}, against exact",
        "Text": f"{on_one_line(report.text)}: {report.num_tokens:,} tokens in {windows}, {report.seconds:.0f} s",
        "Perplexity": f"{q.perplexity:.4f}, exact {q.reference_perplexity:.4f}",
        "KL divergence": f"mean {_figure(q.mean_kl)}{_plus_minus(q.mean_kl_error, _figure)}, "
        f"99th percentile {_figure(q.p99_kl)}, largest {_figure(q.max_kl)} nats",
        "Same likeliest": f"{q.top1:.2%}{_plus_minus(q.top1_error, '{:.2%}'.format)} of {q.num_positions:,} positions",
    }
    return "\n".join(f"{name + ':':<15} {value}" for name, value in lines.items())


def _plus_minus(error: float | None, show: Callable[[float], str]) -> str:
    return "" if error is None else f" ± {show(error)}"


def _figure(value: float) -> str:
    """Two digits at least, however small."""
    return f"{value:.4f}" if value == 0 or value >= 0.01 else f"{value:.2g}"
