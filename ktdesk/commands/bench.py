"""`ktdesk bench`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ktdesk.command import settings_of
from ktdesk.errors import UsageError
from ktdesk.options import EngineOptions

if TYPE_CHECKING:  # help must answer without the engine
    from ktdesk.bench_report import BenchReport
    from ktdesk.settings import Settings

DEFAULT_PROMPT = 512


@dataclass(frozen=True)
class ModelOptions:
    """What is measured of a model."""

    prompt: Annotated[
        list[int] | None,
        typer.Option(
            metavar="N", help="Prompt tokens; 0: no prefill. May be repeated.", show_default=str(DEFAULT_PROMPT)
        ),
    ] = None
    depth: Annotated[
        list[int] | None,
        typer.Option(metavar="N", help="Tokens in the cache before. May be repeated.", show_default="0"),
    ] = None
    answer: Annotated[int, typer.Option(metavar="N", help="Tokens decoded in a sample; 0: no decoding.")] = 32
    batch: Annotated[
        list[int] | None,
        typer.Option(metavar="N", help="Sequences decoded together. May be repeated.", show_default="1"),
    ] = None


@dataclass(frozen=True)
class LayerOptions:
    """What is measured without a model."""

    kernels: Annotated[bool, typer.Option("--kernels", help="Measure one layer of random experts; no MODEL.")] = False
    hybrid: Annotated[
        bool, typer.Option("--hybrid", help="Measure hand-off and deferral beside a thread with delays; no MODEL.")
    ] = False
    shape: Annotated[
        str | None,
        typer.Option(help="qwen3-30b-a3b, deepseek-v2-lite, or H,I,E,K.", show_default="qwen3-30b-a3b"),
    ] = None
    type: Annotated[str | None, typer.Option(help="Of the weights, such as Q4_K.", show_default="Q4_K")] = None
    tokens: Annotated[str | None, typer.Option(metavar="N,N", help="Tokens at once.", show_default="1,512")] = None

    @property
    def are_given(self) -> bool:
        return (self.shape, self.type, self.tokens) != (None, None, None)


@dataclass(frozen=True)
class ServerOptions:
    """What is measured over HTTP."""

    server: Annotated[
        bool, typer.Option("--server", help="Measure a server of MODEL against the engine itself, in one run.")
    ] = False
    part: Annotated[
        list[str] | None,
        typer.Option(metavar="PART", help="prefix, streams or overhead. May be repeated.", show_default="all of them"),
    ] = None
    prefix: Annotated[int, typer.Option(metavar="N", help="Tokens of the prefix that is cached.")] = 4000
    streams: Annotated[int, typer.Option(metavar="N", help="Answers at the same time.")] = 4


@dataclass(frozen=True)
class RunOptions:
    """How it is run: as `EngineOptions`, but the context follows from what is measured."""

    threads: Annotated[int | None, typer.Option(help="Threads to compute on.", show_default="a core each")] = None
    compute: Annotated[str, typer.Option(help="int8, mixed (prompts on tiles), bf16 or float32; auto: mixed.")] = "auto"
    isa: Annotated[
        str | None, typer.Option(help="scalar, avx2, avx512 or amx.", show_default="the widest of this machine")
    ] = None
    cache_type: Annotated[
        str | None,
        typer.Option(
            help="How past tokens are kept: float32, f16, bf16 or q8_0.",
            show_default="f16; float32 with --compute float32",
        ),
    ] = None
    program: Annotated[
        bool, typer.Option("--program/--no-program", help="Replay recorded decode steps, or ask for each operation.")
    ] = True
    repeat: Annotated[int, typer.Option(min=1, metavar="N", help="Samples; the median of them counts.")] = 7
    keep: Annotated[
        bool, typer.Option("--keep/--no-keep", help="Keep what a MODEL took, to correct the next plans.")
    ] = True

    @property
    def engine(self) -> EngineOptions:
        return EngineOptions(
            threads=self.threads,
            compute=self.compute,
            isa=self.isa,
            cache_type=self.cache_type,
            program=self.program,
        )


def bench(
    ctx: typer.Context,
    model: Annotated[
        str | None,
        typer.Argument(
            metavar="MODEL", help="A GGUF file (any shard of several), a model of `ktdesk models`, or 'demo'."
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    against: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Compare with a run that --json stored.", show_default="none")
    ] = None,
    ui: Annotated[bool, typer.Option("--ui", help="Measure what the app costs; no MODEL.")] = False,
    *,
    what: ModelOptions,
    layer: LayerOptions,
    server: ServerOptions,
    run: RunOptions,
) -> None:
    """Measure prefill and decode against what this machine can do.

    Read bandwidth and peak of the arithmetic are measured before and after each sample, so that shares hold on a
    machine whose speed changes. docs/performance.md says what the columns mean.
    """
    if ui:
        if model is not None or layer.kernels or against is not None:
            raise UsageError("--ui measures the app alone: leave MODEL, --kernels and --against out")
        _bench_ui(as_json=as_json)
        return
    num_wanted = layer.hybrid + layer.kernels + (model is not None)
    if num_wanted > 1:
        raise UsageError("MODEL, --kernels and --hybrid each measure something of its own: leave all but one out")
    if num_wanted == 0:
        raise UsageError(
            "name a MODEL, or give --kernels to measure one layer without a model, --hybrid, or --ui for the app"
        )
    if layer.hybrid:
        _print_hybrid(run, as_json)
        return
    if layer.are_given and not layer.kernels:
        raise UsageError("--shape, --type and --tokens need --kernels")
    if layer.kernels and what != ModelOptions():
        raise UsageError("--prompt, --depth, --answer and --batch are for a MODEL: with --kernels, give --tokens")
    if server.server:
        _bench_server(model, what, server, run, settings_of(ctx), as_json=as_json)
        return
    if server != ServerOptions():
        raise UsageError("--part, --prefix and --streams need --server")
    from ktdesk.bench_report import as_facts, compare, comparison_facts, read_stored
    from ktdesk.bench_text import as_text
    from ktdesk.planned_text import planned_lines

    stored = None if against is None else read_stored(against)
    report = _layer_report(layer, run) if model is None else _model_report(model, what, run, settings_of(ctx))
    comparison = None if stored is None or against is None else compare(report, stored, against)
    if not as_json:
        print(as_text(report, comparison))
        if report.planned:
            print("\n" + "\n".join(planned_lines(report.planned)))
        return
    from ktdesk.bench_text import busy_warning
    from ktdesk.json_output import json_text
    from ktdesk.terminal import note

    facts = as_facts(report) | ({} if comparison is None else {"against": comparison_facts(comparison)})
    print(json_text(facts))
    warning = busy_warning(report)
    if warning is not None:
        note(warning)


def _bench_server(
    model: str | None, what: ModelOptions, server: ServerOptions, run: RunOptions, settings: Settings, *, as_json: bool
) -> None:
    if model is None or what != replace(ModelOptions(), answer=what.answer):
        raise UsageError(
            "--server measures a MODEL; of --prompt, --depth, --answer and --batch it takes --answer alone"
        )
    from ktdesk.json_output import json_text
    from ktdesk.model_paths import model_path
    from ktdesk.server_bench import PARTS, ServerPlan, as_facts, as_text, bench_server

    plan = ServerPlan(tuple(server.part or PARTS), server.prefix, server.streams, what.answer, run.repeat)
    report = bench_server(model_path(model, settings), run.engine, plan)
    print(json_text(as_facts(report)) if as_json else as_text(report))


def _bench_ui(*, as_json: bool) -> None:
    from ktdesk.json_output import json_text
    from ktdesk.ui_benchmark.measuring import measure_ui
    from ktdesk.ui_benchmark.report import as_text

    report = measure_ui()
    print(json_text(report.facts()) if as_json else as_text(report))


def _print_hybrid(run: RunOptions, as_json: bool) -> None:
    from dataclasses import asdict

    from ktdesk.benchmarking import bench_hybrid
    from ktdesk.json_output import json_text
    from ktdesk_engine.benchmark.hybrid import as_text

    times = bench_hybrid(run.engine, run.repeat)
    print(json_text(asdict(times)) if as_json else as_text(times))


def _model_report(model: str, what: ModelOptions, run: RunOptions, settings: Settings) -> BenchReport:
    from ktdesk.benchmarking import bench_model
    from ktdesk.model_paths import model_path
    from ktdesk.terminal import note
    from ktdesk_engine.benchmark.model import ModelPlan
    from ktdesk_wizard.errors import HomeFolderError
    from ktdesk_wizard.probe.measurement import raise_ceilings, with_measurement
    from ktdesk_wizard.probe.probe import probe
    from ktdesk_wizard.prove.store import load_runs, save_run

    prompts = [DEFAULT_PROMPT] if what.prompt is None else [length for length in what.prompt if length != 0]
    plan = ModelPlan(tuple(prompts), tuple(what.depth or [0]), what.answer, tuple(what.batch or [1]), run.repeat)
    facts = with_measurement(probe(settings.data_folder / "models"), settings.data_folder)
    earlier = load_runs(settings.data_folder)
    report, measured = bench_model(model_path(model, settings), plan, run.engine, facts, earlier)
    if run.keep and run.program:
        try:
            save_run(measured, settings.data_folder)
            learnt = measured.ceilings and raise_ceilings(facts, settings.data_folder, *measured.ceilings)
            if learnt:
                note(learnt)
        except HomeFolderError as error:
            note(str(error))
    return report


def _layer_report(layer: LayerOptions, run: RunOptions) -> BenchReport:
    from ktdesk.benchmarking import bench_layer, parse_shape, parse_tokens, parse_type
    from ktdesk_engine.benchmark.layer import LayerPlan

    plan = LayerPlan(
        shape=parse_shape(layer.shape or "qwen3-30b-a3b"),
        type=parse_type(layer.type or "Q4_K"),
        tokens=parse_tokens(layer.tokens or "1,512"),
        repeat=run.repeat,
        compute=run.engine.config.compute,
    )
    return bench_layer(plan, run.engine)
