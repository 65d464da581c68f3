"""`ktdesk doctor` on this machine: what it prints, and the report that it writes."""

from __future__ import annotations

import getpass
import json
import socket
from pathlib import Path

import pytest
from running import RunKtdesk

from ktdesk.exit_codes import ExitCode


def test_findings_are_told_with_evidence_and_what_to_do(ktdesk: RunKtdesk) -> None:
    result = ktdesk("doctor")
    assert "was not measured" in result.out
    assert "  do    ktdesk probe --measure" in result.out
    findings = json.loads(ktdesk("doctor", "--json").out)["findings"]
    assert "not-measured" in [finding["id"] for finding in findings]
    assert all(finding["evidence"] and finding["fix"] for finding in findings)


def test_a_report_is_written_once_and_names_nobody(
    ktdesk: RunKtdesk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home" / "mallory"
    home.mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setattr(getpass, "getuser", lambda: "mallory")
    monkeypatch.setattr(socket, "gethostname", lambda: "vault17")
    bundle = tmp_path / "report.json"
    result = ktdesk("--home", home / "data", "doctor", "--bundle", bundle)
    assert "read it before you send it" in result.err
    text = bundle.read_text()
    assert "mallory" not in text
    assert "vault17" not in text
    report = json.loads(text)
    assert report["facts"]["cpu"]["name"]["value"]
    assert report["packages"]["numpy"]
    assert report["findings"]
    again = ktdesk("doctor", "--bundle", bundle)
    assert again.code == ExitCode.USAGE
    assert "already" in again.error
    assert "a folder" in ktdesk("doctor", "--bundle", tmp_path).error
    assert ktdesk("doctor", "--bundle", tmp_path / "none" / "x").code == ExitCode.USAGE


def test_trouble_ends_with_its_code(ktdesk: RunKtdesk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.access", lambda *_: False)
    result = ktdesk("--home", tmp_path, "doctor")
    assert result.code == ExitCode.RESOURCES
    assert "cannot be written" in result.out
