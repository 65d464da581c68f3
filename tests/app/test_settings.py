"""Where the user's data lies."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from running import RunKtdesk

from ktdesk.errors import UsageError
from ktdesk.exit_codes import ExitCode
from ktdesk.settings import Settings

FOLDERS = ("HOME", "XDG_DATA_HOME")


def test_a_tilde_is_the_users_own_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert Settings(home="~/models").data_folder == tmp_path / "models"
    with pytest.raises(UsageError, match="~nobody-of-this-name/x"):
        _ = Settings(home="~nobody-of-this-name/x").data_folder


def test_a_folder_without_a_name_is_refused(ktdesk: RunKtdesk) -> None:
    result = ktdesk("--home", "", "demo", "--fetch-only")
    assert result.code == ExitCode.USAGE
    assert "--home is empty" in result.error


def test_a_user_without_a_home_folder_is_told_to_name_one(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in FOLDERS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os, "getuid", lambda: 987_654_321)
    with pytest.raises(UsageError, match="--home DIR or KTDESK_HOME"):
        _ = Settings().data_folder


def test_a_relative_folder_needs_a_current_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with pytest.raises(UsageError, match="--home here: the current folder was deleted"):
        _ = Settings(home="here").data_folder
    assert Settings(home="/there").data_folder == Path("/there")


def test_a_system_that_names_no_runtime_folder_is_no_reason_for_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    """Warnings are errors here."""
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    assert Settings(home=None).runtime_folder.is_absolute()
