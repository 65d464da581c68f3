"""Looks at a model on a hub before it is fetched: what its headers show to be no model, or none that runs here."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

from ktdesk.exit_codes import ExitCode
from ktdesk.model_report import ModelReport, read_report
from ktdesk_engine.errors import ModelFileError, UnsupportedError
from ktdesk_wizard.errors import FetchError
from ktdesk_wizard.hub.headers import fetch_headers
from ktdesk_wizard.hub.http import Http
from ktdesk_wizard.hub.location import RemoteFile
from ktdesk_wizard.report import Report

ALL_THE_SAME = "nothing was fetched; --force fetches it all the same"


def refuse_what_does_not_run(http: Http, name: str, files: Sequence[RemoteFile], report: Report) -> None:
    """ModelFileError or UnsupportedError, in a line. What cannot be looked at, as where a server knows no ranges, may
    be a model."""
    with tempfile.TemporaryDirectory(prefix="ktdesk-headers-") as folder:
        try:
            path = fetch_headers(http, files, Path(folder), report).path
        except FetchError:
            return
        except ModelFileError as error:
            raise ModelFileError(error.path, f"{error.problem}; {ALL_THE_SAME}") from error
        _refuse(read_report(path), name)  # the path that it was read to for a moment says nothing


def _refuse(found: ModelReport, name: str) -> None:
    """With what is found first. Memory and templates are for plans and answers to judge."""
    if found.engine is not None:
        return
    if not found.tensors:
        raise ModelFileError(name, f"it has no tensors; {ALL_THE_SAME}")
    for problem in found.problems:
        text = f"{problem.message.removeprefix(f'{found.path}: ')}; {ALL_THE_SAME}"
        if problem.exit_code is ExitCode.MODEL_FILE:
            raise ModelFileError(name, text)
        if problem.exit_code is ExitCode.UNSUPPORTED:
            other = f". {found.not_by_llamacpp}" if found.not_by_llamacpp else ""
            raise UnsupportedError(f"{name}: {text}{other}")
