"""The process in which chat templates run: one JSON line in, one JSON line out, until standard input ends.

`process.py` starts it, alone and with nothing but jinja2 on its path, and kills it when it takes too
long. A template comes with a model from anywhere, so it is treated as hostile: the immutable sandbox keeps it
from the interpreter, and the limits set here keep the process from files, sockets, other processes and memory
even if the sandbox fails. Nothing here knows the engine.

in:  {"template": str, "context": {name: JSON value}, "now": local time as ISO 8601}
out: {"text": str} or {"error": kind, "message": str, "line": int}, kind being syntax, refused (by
     raise_exception), failed, output or memory; line 0 where it is not known
"""

from __future__ import annotations

import html  # noqa: F401 (it and its like: jinja2 imports them when no file can be opened any more)
import json
import math
import pprint  # noqa: F401
import random  # noqa: F401
import resource
import sys
import textwrap  # noqa: F401
from datetime import datetime
from functools import lru_cache
from types import TracebackType
from typing import Any

import jinja2
import jinja2.constants
import jinja2.debug
from jinja2 import nodes
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import Macro
from jinja2.sandbox import ImmutableSandboxedEnvironment

MAX_MESSAGE_CHARS = 500
MAX_COMPILED = 8


class Refusal(jinja2.TemplateError):
    """The template itself called raise_exception."""


class OutputLimitError(Exception):
    """The text grew beyond what any context could hold."""


class GenerationTag(Extension):
    """`{% generation %} ... {% endgeneration %}`: marks what a model wrote, for training. Here it renders.

    Its body is the body of a call block, so that what is set inside stays inside, as elsewhere.
    """

    tags = {"generation"}  # noqa: RUF012 (jinja2 declares it as a plain attribute)

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.CallBlock(self.call_method("_render_body"), [], [], body).set_lineno(line)

    def _render_body(self, caller: Macro) -> str:
        return caller()


class GuardedNamespace(jinja2.utils.Namespace):
    """`namespace(...)` without names that begin with an underscore."""

    def __init__(*args: Any, **kwargs: Any) -> None:
        self, *values = args  # a template may name a value `self`
        attributes = dict(*values, **kwargs)
        for name in attributes:
            _refuse_underscore(name)
        jinja2.utils.Namespace.__init__(self, attributes)

    def __setitem__(self, name: str, value: Any) -> None:
        _refuse_underscore(name)
        super().__setitem__(name, value)


def _refuse_underscore(name: object) -> None:
    if str(name).startswith("_"):
        raise SecurityError(f"a namespace may not hold {name!r}: it begins with an underscore")


def _raise_exception(message: object) -> None:
    raise Refusal(str(message))


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON as models were trained on it: no escapes for HTML, letters of all scripts as they are."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def make_environment() -> ImmutableSandboxedEnvironment:
    """The dialect of chat templates: white space control, loop controls, and a few names."""
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[GenerationTag, loopcontrols]
    )
    environment.filters["tojson"] = _tojson
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["namespace"] = GuardedNamespace
    return environment


@lru_cache(maxsize=MAX_COMPILED)
def _compile(template: str) -> jinja2.Template:
    return make_environment().from_string(template)


def render(template: str, context: dict[str, Any], now: datetime, max_chars: int) -> str:
    """The text of a template. Time does not pass for it: strftime_now formats `now`."""

    def strftime_now(form: str) -> str:
        return now.strftime(form)

    parts, num_chars = [], 0
    for part in _compile(template).generate({"strftime_now": strftime_now, **context}):
        num_chars += len(part)
        if num_chars > max_chars:
            raise OutputLimitError
        parts.append(part)
    return "".join(parts)


def _template_line(traceback: TracebackType | None) -> int:
    """The line of the template in which it failed; 0 if none is known."""
    line = 0
    while traceback is not None:
        if traceback.tb_frame.f_code.co_filename == "<template>":
            line = traceback.tb_lineno
        traceback = traceback.tb_next
    return line


def _failure(kind: str, error: BaseException, line: int = 0) -> dict[str, Any]:
    message = str(error) or type(error).__name__
    return {"error": kind, "message": message[:MAX_MESSAGE_CHARS], "line": line}


def answer(request: bytes, max_chars: int) -> dict[str, Any]:
    """What is sent back for one line: the text, or how it failed."""
    try:
        task = json.loads(request)
        now = datetime.fromisoformat(task["now"])
        return {"text": render(task["template"], task["context"], now, max_chars)}
    except jinja2.TemplateSyntaxError as error:
        return _failure("syntax", error, error.lineno)
    except Refusal as error:
        return _failure("refused", error)
    except OutputLimitError as error:
        return _failure("output", error)
    except MemoryError as error:
        return _failure("memory", error)
    except Exception as error:  # whatever a template can raise: it is reported, not survived
        return _failure("failed", error, _template_line(error.__traceback__))


def _lock_down(memory_bytes: int) -> None:
    """From here on: no file or socket can be opened, no process started, nothing written but the answers."""
    for limit, value in (
        (resource.RLIMIT_AS, memory_bytes),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_NPROC, 0),
        (resource.RLIMIT_NOFILE, 3),
    ):
        most = _at_most_hard(limit, value)
        resource.setrlimit(limit, (most, most))


def _allow_cpu(seconds: float) -> None:
    """Processor time for the next request, so that it ends even where nobody is left to kill it."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    allowed = math.ceil(usage.ru_utime + usage.ru_stime + seconds)
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (_at_most_hard(resource.RLIMIT_CPU, allowed), hard))


def _at_most_hard(limit: int, value: int) -> int:
    """A limit may be lowered below what the system or the user set, not raised above it."""
    _, hard = resource.getrlimit(limit)
    return value if hard == resource.RLIM_INFINITY else min(value, hard)


def main(limits: str) -> None:
    """limits: JSON of seconds, memory_bytes and max_chars. Says `{}` when ready."""
    allowed = json.loads(limits)
    render("{{ strftime_now('%Y') }}{{ missing | pprint }}", {}, datetime.now(), 100)  # imports what is lazy
    _lock_down(allowed["memory_bytes"])
    reply: dict[str, Any] = {}
    while True:
        sys.stdout.buffer.write(json.dumps(reply).encode() + b"\n")
        sys.stdout.buffer.flush()
        request = sys.stdin.buffer.readline()
        if not request:
            return
        _allow_cpu(allowed["seconds"])
        reply = answer(request, allowed["max_chars"])
