"""What a command ends with: the one table."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    OK = 0
    UNEXPECTED = 1
    USAGE = 2
    MODEL_FILE = 3
    UNSUPPORTED = 4
    REQUEST = 5
    RESOURCES = 6
    FETCH = 7
    INCOMPLETE = 8
    HUNG_UP = 129
    INTERRUPTED = 130
    OUTPUT_CLOSED = 141
    TERMINATED = 143


MEANING = {
    ExitCode.OK: "it worked",
    ExitCode.UNEXPECTED: "an error nobody expected; --debug shows where",
    ExitCode.USAGE: "the command line asks for what makes no sense, or a server, profile or cache that is not there",
    ExitCode.MODEL_FILE: "a model file is missing, damaged or incomplete, or nobody knows a model of that name",
    ExitCode.UNSUPPORTED: "the file is sound, but holds what ktdesk does not know",
    ExitCode.REQUEST: "the prompt is too long, or the chat template refused it",
    ExitCode.RESOURCES: "not enough memory or disk, a folder cannot be written, a port is taken, or a server went away",
    ExitCode.FETCH: "something could not be fetched",
    ExitCode.INCOMPLETE: "nothing failed, but the time did not suffice to test all",
    ExitCode.HUNG_UP: "stopped by SIGHUP: its terminal was closed",
    ExitCode.INTERRUPTED: "stopped by Ctrl-C",
    ExitCode.OUTPUT_CLOSED: "the reader of the output went away",
    ExitCode.TERMINATED: "stopped by SIGTERM",
}


def table() -> str:
    """For people, a line a code."""
    return "\n".join(f"{code:>5}  {MEANING[code]}" for code in ExitCode)
