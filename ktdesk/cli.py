"""The command line `ktdesk`. What a command does is imported when it runs, so that help answers at once."""

from __future__ import annotations

import signal
import sys
from typing import Annotated, NoReturn

import typer

from ktdesk.command import Command, command, guarded, tell_error
from ktdesk.commands import (
    bench,
    cache,
    chat,
    demo,
    doctor,
    eval,
    inspect,
    models,
    plan,
    probe,
    profile,
    pull,
    run,
    serve,
    setup,
)
from ktdesk.exit_codes import ExitCode, table
from ktdesk.settings import HOME_VARIABLE, Settings
from ktdesk.standard_streams import forget_unwritable, prepare_streams

EPILOG = f"\b\nExit codes:\n{table()}"  # \b: as it is, not filled into lines

app = typer.Typer(
    name="ktdesk",
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib import metadata

        print(f"ktdesk {metadata.version('ktdesk')}")
        raise typer.Exit


@app.callback(invoke_without_command=True, epilog=EPILOG)
def root(
    ctx: typer.Context,
    debug: Annotated[bool, typer.Option("--debug", help="Show where an error comes from.")] = False,
    home: Annotated[
        str | None,
        typer.Option(
            metavar="DIR",
            envvar=HOME_VARIABLE,
            show_default="the system's folder for program data",
            help="Where ktdesk keeps its data.",
        ),
    ] = None,
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_print_version, help="Print the version.")
    ] = False,
) -> None:
    """Run mixture-of-experts language models from GGUF files.

    Without a command, in a terminal, the app opens: chat with a model, full screen.
    """
    ctx.obj = Settings(debug, home)
    if ctx.invoked_subcommand is None:
        if sys.stdin.isatty() and sys.stdout.isatty():
            raise typer.Exit(guarded(lambda: _open_app(ctx.obj), debug=debug))
        print(ctx.get_help())


def _open_app(settings: Settings) -> int:
    from ktdesk.tui.running import run_app

    return run_app(settings)


COMMANDS = (
    demo.demo,
    setup.setup,
    run.run,
    chat.chat,
    serve.serve,
    pull.pull,
    inspect.inspect,
    plan.plan,
    eval.eval,
    bench.bench,
    probe.probe,
    doctor.doctor,
    serve.ps,
    serve.stop,
    serve.logs,
)
for function in COMMANDS:
    app.command(cls=Command)(command(function))

cache_commands = typer.Typer(help="The prefixes that servers keep on disk.", rich_markup_mode=None)
cache_commands.command(cls=Command)(command(cache.ls))
cache_commands.command(cls=Command)(command(cache.rm))
app.add_typer(cache_commands, name="cache")

profile_commands = typer.Typer(
    help="Machines, models, placement rules and presets: those that ship, and yours.",
    rich_markup_mode=None,
)
profile_commands.command(cls=Command)(command(profile.ls))
profile_commands.command(cls=Command)(command(profile.show))
app.add_typer(profile_commands, name="profile")

models_commands = typer.Typer(help="The models in the data folder: list, verify, remove.", rich_markup_mode=None)


@models_commands.callback(invoke_without_command=True)
def list_models(
    ctx: typer.Context,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """The models in the data folder: lists them, unless another command is given."""
    if ctx.invoked_subcommand is None:
        command(models.ls)(ctx, as_json=as_json)


models_commands.command(cls=Command)(command(models.ls))
models_commands.command(cls=Command)(command(models.verify))
models_commands.command(cls=Command)(command(models.rm))
app.add_typer(models_commands, name="models")


def main(arguments: list[str] | None = None) -> NoReturn:
    prepare_streams()
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # as nohup asks for
            signal.signal(number, _terminate)
    try:
        code = run_command_line(sys.argv[1:] if arguments is None else arguments)
    finally:
        for stream in (sys.stdout, sys.stderr):
            forget_unwritable(stream)
    sys.exit(code)


def _terminate(number: int, frame: object) -> NoReturn:
    """Ends by way of an exception, so that what was begun is cleaned up."""
    sys.exit(128 + number)


def run_command_line(arguments: list[str]) -> int:
    """The exit code."""
    return guarded(lambda: _run(arguments))


def _run(arguments: list[str]) -> int:
    """Not by typer's own `main`, which ends with 1 where nobody reads the help."""
    try:
        program = typer.main.get_command(app)
        with program.make_context("ktdesk", list(arguments)) as context:
            program.invoke(context)
        return ExitCode.OK
    except typer.Exit as end:
        return end.exit_code
    except Exception as error:
        if not hasattr(error, "format_message"):  # only what the parser raises has it
            raise
        return _refuse(error)


ELSEWHERE = {
    "--accelerator": "--device gpu",
    "--accelerator-memory": "--max-gpu-memory",
    "--device": "--accelerator cuda",
    "--max-gpu-memory": "--accelerator-memory",
}
"""What an option of other commands is here: a plan speaks of devices, whoever computes of an accelerator."""


def _elsewhere(error: Exception, context: typer.Context | None) -> str:
    """Where an option is another command's, what it is called here."""
    if context is None or not hasattr(error, "possibilities"):  # only what is said of an option that there is not
        return ""
    here = ELSEWHERE.get(str(getattr(error, "option_name", "")))
    known = {option for parameter in context.command.params for option in parameter.opts}
    return f"; here that is {here}" if here is not None and here.split()[0] in known else ""


def _refuse(error: Exception) -> int:
    """Of a command line that cannot be parsed."""
    from ktdesk.refusal_words import in_own_words

    context = getattr(error, "ctx", None)
    message = in_own_words(str(error.format_message()))  # type: ignore[attr-defined]
    path = context.command_path if context is not None else "ktdesk"
    tell_error(f"{message.rstrip('.')}{_elsewhere(error, context)}; see '{path} --help'")
    return ExitCode.USAGE
