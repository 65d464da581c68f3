"""`ktdesk serve`, `ps`, `stop` and `logs`."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from ktdesk.command import settings_of
from ktdesk.errors import UsageError
from ktdesk.exit_codes import ExitCode
from ktdesk.options import EngineOptions
from ktdesk.settings import KEY_VARIABLE
from ktdesk.terminal import note

if TYPE_CHECKING:
    from ktdesk.server_records import ServerRecord

GIB = 1 << 30
ServerName = Annotated[
    str | None, typer.Argument(metavar="SERVER", help="Its port or its model.", show_default="the only one")
]


@dataclass(frozen=True)
class ServeOptions:
    for_client: Annotated[
        bool, typer.Option("--for-client", hidden=True, help="`run`, `chat` or the app started it for itself.")
    ] = False
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1"
    port: Annotated[int, typer.Option(help="0: any that is free.")] = 8631
    api_key: Annotated[
        str | None, typer.Option(envvar=KEY_VARIABLE, help="What clients must send as key.", show_default="none needed")
    ] = None
    allow_public: Annotated[bool, typer.Option("--allow-public", help="Listen beyond this machine without a key.")] = (
        False
    )
    allow_host: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="A name under which clients reach the server. May be repeated."),
    ] = None
    cors_origin: Annotated[
        list[str] | None,
        typer.Option(metavar="ORIGIN", help="A web page that may use the server. May be repeated."),
    ] = None
    max_body_bytes: Annotated[int, typer.Option(help="Of one request.")] = 32 << 20
    max_prompt: Annotated[
        int | None, typer.Option(metavar="TOKENS", help="Longest prompt.", show_default="the context")
    ] = None
    max_output: Annotated[
        int | None, typer.Option(metavar="TOKENS", help="Longest answer.", show_default="the context")
    ] = None
    deadline: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", help="Give an answer up that is not whole by then.", show_default="none"),
    ] = None
    keep_alive: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", help="End when nobody asked for so long.", show_default="never"),
    ] = None
    models_folder: Annotated[
        list[str] | None,
        typer.Option(metavar="DIR", help="Its models can be asked for too, as those of the store. May be repeated."),
    ] = None
    models_loaded: Annotated[
        int,
        typer.Option(metavar="N", help="Models in memory at the same time; the longest unused leaves for another."),
    ] = 1
    turn_wait: Annotated[
        float,
        typer.Option(metavar="SECONDS", help="Refuse a request whose model waits so long until others are done."),
    ] = 60.0
    memory_guard: Annotated[
        bool,
        typer.Option("--memory-guard/--no-memory-guard", help="Refuse to load what does not fit into memory."),
    ] = True
    cpu_fallback: Annotated[
        bool,
        typer.Option("--cpu-fallback/--no-cpu-fallback", help="Load a model anew on the CPU when its GPU is lost."),
    ] = True
    finish_seconds: Annotated[float, typer.Option(help="For answers that run when the server is told to stop.")] = 10.0


@dataclass(frozen=True)
class ScheduleOptions:
    parallel: Annotated[int, typer.Option(help="Requests that are computed at the same time.")] = 4
    max_waiting: Annotated[int, typer.Option(help="Requests in the queue; more are refused.")] = 64
    max_stall_ms: Annotated[
        float, typer.Option(help="Between two tokens of an answer, while prompts of others are computed.")
    ] = 500.0
    max_wait: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", help="Refuse requests that would wait longer.", show_default="never"),
    ] = None
    cache_ram: Annotated[
        float, typer.Option(min=0, metavar="GIB", help="Memory for prefixes that nobody uses now.")
    ] = 0.0
    cache_disk: Annotated[
        float, typer.Option(min=0, metavar="GIB", help="Disk for prefixes; they outlive the server.")
    ] = 0.0
    pin: Annotated[
        bool, typer.Option("--pin/--no-pin", help="Keep system prompts and tools cached before all else.")
    ] = True


def serve(
    ctx: typer.Context,
    models: Annotated[
        list[str],
        typer.Argument(
            metavar="MODEL...",
            help="A GGUF file (any shard of several), a model of `ktdesk models`, or 'demo'. The first is loaded now.",
        ),
    ],
    *,
    options: ServeOptions,
    schedule: ScheduleOptions,
    engine: EngineOptions,
) -> None:
    """Serve models to OpenAI's, Anthropic's and Ollama's clients.

    It listens at once and loads the first while it does; /health says how far it is. The others, those of the store
    and of --models-folder are loaded when a request names them. SIGTERM lets running answers finish.
    """
    from pathlib import Path

    from ktdesk.model_paths import model_path
    from ktdesk.server.known_models import KnownModels
    from ktdesk.server.settings import ServerSettings
    from ktdesk.serving import serve_models
    from ktdesk_engine.prefix_cache.limits import CacheLimits
    from ktdesk_engine.scheduler.limits import SchedulerLimits

    server = ServerSettings(
        host=options.host,
        port=options.port,
        api_key=options.api_key,
        allow_public=options.allow_public,
        allowed_hosts=tuple(options.allow_host or ()),
        cors_origins=tuple(options.cors_origin or ()),
        max_body_bytes=options.max_body_bytes,
        max_prompt_tokens=options.max_prompt,
        max_output_tokens=options.max_output,
        deadline_seconds=options.deadline,
        pins_beginnings=schedule.pin,
        max_models=options.models_loaded,
        turn_wait_seconds=options.turn_wait,
        falls_back=options.cpu_fallback,
        keep_alive_seconds=options.keep_alive,
        finish_seconds=options.finish_seconds,
    )
    settings = settings_of(ctx)
    limits = SchedulerLimits(
        max_running=schedule.parallel,
        max_waiting=schedule.max_waiting,
        max_stall_ms=schedule.max_stall_ms,
        max_wait_seconds=schedule.max_wait,
    )
    cache = CacheLimits(
        ram_bytes=round(schedule.cache_ram * GIB),
        disk_bytes=round(schedule.cache_disk * GIB),
        disk_folder=settings.prefix_folder if schedule.cache_disk else None,
    )
    folders = (settings.models_folder, *map(Path, options.models_folder or ()))
    for folder in folders[1:]:
        if not folder.is_dir():
            raise UsageError(f"--models-folder {folder}: no such folder")
    known = KnownModels([model_path(model, settings) for model in models], folders)
    serve_models(
        known,
        settings,
        server,
        engine,
        limits,
        cache,
        guards_memory=options.memory_guard,
        for_client=options.for_client,
    )


def ps(
    ctx: typer.Context,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """List the servers that run, with what they have in memory."""
    from ktdesk.server_records import models_of, running_servers

    records = running_servers(settings_of(ctx))
    if as_json:
        facts = [{**asdict(record), "models": models_of(record)} for record in records]
        print(json.dumps({"servers": facts}, indent=2))
        return
    if not records:
        note("no server runs; `ktdesk serve MODEL` starts one")
    for record in records:
        print(f"{record.port:>5}  {record.pid:>7}  {_models_text(record)}  {record.url}")


def _models_text(record: ServerRecord) -> str:
    """Such as `a, b (loading 12 %)`; the model that it began with where none is in memory."""
    from ktdesk.server_records import models_of

    shown = [
        str(model["name"])
        if model["stage"] == "ready"
        else f"{model['name']} ({model['stage']} {model['percent']:.0f} %)"
        for model in models_of(record)
    ]
    return ", ".join(shown) or f"{record.model} (not in memory)"


def stop(
    ctx: typer.Context,
    server: ServerName = None,
    all_servers: Annotated[bool, typer.Option("--all", help="End all of them.")] = False,
    limit_seconds: Annotated[float, typer.Option(help="How long to wait for its end.")] = 60.0,
) -> int:
    """End a server, or all; running answers may finish. Of a server with several models, name the port or the model
    that it was started with."""
    from ktdesk.command import tell_error
    from ktdesk.server_records import find_server_to_end, running_servers, stop_servers

    settings = settings_of(ctx)
    if all_servers and server is not None:
        raise UsageError(f"{server!r} and --all contradict each other: leave one of them out")
    if not limit_seconds >= 0:
        raise UsageError(f"--limit-seconds must be at least 0: {limit_seconds:g}")
    records = running_servers(settings) if all_servers else [find_server_to_end(settings, server)]
    if not records:
        note("no server runs: there is nothing to end")
    left = stop_servers(records, limit_seconds)
    if left:
        each = " and ".join(f"on port {record.port} (process {record.pid})" for record in left)
        tell_error(f"the server {each} still runs after {limit_seconds:g} s")
    return ExitCode.RESOURCES if left else ExitCode.OK


def logs(ctx: typer.Context, server: ServerName = None) -> None:
    """Print what a server said. Of one that has ended by its port; without a name, where none runs, the last."""
    from ktdesk.server_records import find_log

    print(find_log(settings_of(ctx), server).read_text(encoding="utf-8"), end="")
