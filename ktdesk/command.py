"""Turns a function into a command: its dataclasses into options, its errors into a line and an exit code."""

from __future__ import annotations

import functools
import sys
import traceback
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from inspect import Parameter, Signature, signature
from typing import Any, get_type_hints

import typer
from typer.core import TyperCommand

from ktdesk.exit_codes import ExitCode
from ktdesk.settings import Settings
from ktdesk.standard_streams import forget_unwritable
from ktdesk.terminal import on_one_line, tell, without_control

CommandFunction = Callable[..., int | None]
"""Its first argument is the typer.Context; it returns an exit code, or None for 0."""


class Command(TyperCommand):
    """Whose refusals all know which command they are of."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except Exception as error:
            if getattr(error, "ctx", ctx) is None:  # of an option without its value the parser does not tell it
                error.ctx = ctx  # type: ignore[attr-defined]
            raise


def command(function: CommandFunction) -> Callable[..., None]:
    """A parameter that is a dataclass of options becomes one option for each of its fields."""
    given = signature(function, eval_str=True).parameters.values()
    groups: dict[str, Any] = {p.name: p.annotation for p in given if is_dataclass(p.annotation)}

    @functools.wraps(function)
    def run(ctx: typer.Context, **values: Any) -> None:
        for name, group in groups.items():
            values[name] = group(**{field.name: values.pop(field.name) for field in fields(group)})
        settings = settings_of(ctx)

        def job() -> int | None:
            settled = {name: values[name].with_settings(settings) for name in groups if _needs_settings(groups[name])}
            return function(ctx, **{**values, **settled})

        raise typer.Exit(guarded(job, debug=settings.debug))

    parameters: list[Parameter] = []
    for parameter in given:
        is_group = parameter.name in groups
        parameters += _options(parameter.annotation) if is_group else [parameter.replace(kind=Parameter.KEYWORD_ONLY)]
    run.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


def _needs_settings(group: type) -> bool:
    """What its options name lies in the user's data: `with_settings` puts it in their place."""
    return hasattr(group, "with_settings")


def _options(group: type) -> list[Parameter]:
    hints = get_type_hints(group, include_extras=True)
    return [
        Parameter(field.name, Parameter.KEYWORD_ONLY, default=field.default, annotation=hints[field.name])
        for field in fields(group)
    ]


def settings_of(ctx: typer.Context) -> Settings:
    settings = ctx.obj
    assert isinstance(settings, Settings)
    return settings


def guarded(job: Callable[[], int | None], *, debug: bool = False) -> int:
    """The exit code of a job. An error is told in one line on standard error, and with --debug in full."""
    try:
        code = job() or ExitCode.OK
        sys.stdout.flush()  # here, where it is noticed if nobody reads
        return code
    except KeyboardInterrupt:
        if sys.stderr.isatty():
            tell("")  # the shell's prompt gets a line of its own
        return ExitCode.INTERRUPTED
    except Exception as error:
        forget_unwritable(sys.stdout)
        return explained(error, debug)


def explained(error: Exception, debug: bool) -> int:
    """The exit code of an error, told unless it is only that nobody reads any more."""
    from ktdesk.failures import describe, exit_code_of

    code = exit_code_of(error)
    if code != ExitCode.OUTPUT_CLOSED:
        if debug:
            tell(without_control(traceback.format_exc()), end="")
        tell_error(describe(error))
    return code


def tell_error(message: str) -> None:
    tell(f"ktdesk: error: {on_one_line(message)}")
