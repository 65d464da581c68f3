"""`ktdesk doctor` on this machine: what it prints, and the report that it writes."""

from __future__ import annotations

import getpass
import json
import socket
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from running import RunKtdesk

from ktdesk.exit_codes import ExitCode
from ktdesk_engine.backends.cuda.availability import Installed
from ktdesk_wizard.gpu_test.outcome import Figure
from ktdesk_wizard.gpu_test.running import run_checks
from ktdesk_wizard.gpu_test.subject import Check, Subject, WrongResultError


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


def test_without_a_gpu_one_line_says_what_is_missing(ktdesk: RunKtdesk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ktdesk_engine.accelerators.look", lambda: Installed(None))
    result = ktdesk("doctor", "--gpu")
    assert result.code == ExitCode.RESOURCES
    assert result.error.endswith(
        "accelerator cuda: no NVIDIA driver is here (libcuda.so.1): install the one of your card, until `nvidia-smi` "
        "lists it"
    )


def test_the_test_of_a_gpu_can_be_rehearsed_without_one(ktdesk: RunKtdesk) -> None:
    report = json.loads(ktdesk("doctor", "--gpu", "--accelerator", "host-thread", "--json").out)
    assert report["is_rehearsal"]
    assert report["counts"]["failed"] == 0
    assert report["counts"]["ok"] == len(report["checks"])
    figures = {check["check"]: check["figures"] for check in report["checks"]}
    assert figures["hand-off in a recorded step"][0]["unit"] == "us"


def test_a_check_that_failed_ends_with_another_code_and_its_cause(
    ktdesk: RunKtdesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wrong(subject: Subject) -> Iterator[Figure]:
        yield Figure("few tokens: error", 1e-7)
        yield Figure("rate", 0.5, "GB/s", at_least=0.7)
        raise WrongResultError("many tokens: off by 0.5 of the largest value")

    checks = [Check("products", wrong), Check("norms", lambda subject: iter([Figure("rate", 3, "GB/s", at_least=7)]))]
    monkeypatch.setattr("ktdesk_wizard.gpu_test.running.all_checks", lambda subject: checks)
    result = ktdesk("doctor", "--gpu", "--accelerator", "host-thread")
    assert result.code == ExitCode.RESOURCES
    first, cause, second, *_, last = (" ".join(line.split()) for line in result.out.splitlines())
    assert first == "failed products largest error 1.0e-07, rate 0.5 GB/s (should be at least 0.7)"
    assert cause == "many tokens: off by 0.5 of the largest value"
    assert second == "slow norms rate 3 GB/s (should be at least 7)"
    assert last.startswith("1 right, but slower than they should be, 1 failed, in ")


def test_what_there_was_no_time_for_is_named_and_ends_with_a_code_of_its_own(
    ktdesk: RunKtdesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    checks = [Check(f"products with {name}", lambda subject: iter([])) for name in ("Q4_0", "Q4_1")]
    monkeypatch.setattr("ktdesk_wizard.gpu_test.running.all_checks", lambda subject: checks)
    monkeypatch.setattr("ktdesk_wizard.gpu_test.running.run_checks", partial(run_checks, limit_seconds=-1.0))
    result = ktdesk("doctor", "--gpu", "--accelerator", "host-thread")
    assert result.code == ExitCode.INCOMPLETE
    assert "Not tested, for the time was over: products with Q4_0, products with Q4_1." in result.out
    assert "2 not tested, in " in result.out
    facts = json.loads(ktdesk("doctor", "--gpu", "--accelerator", "host-thread", "--json").out)
    assert not facts["is_complete"]
    assert facts["counts"]["untested"] == 2


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--gpu", "--accelerator", "tpu"), "--accelerator must be one of cuda, host-thread: 'tpu'"),
        (("--gpu", "--bundle", "report.json"), "--bundle is a report without --gpu"),
        (("--accelerator", "host-thread"), "--accelerator is for --gpu"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: tuple[str, ...], said: str, ktdesk: RunKtdesk) -> None:
    result = ktdesk("doctor", *options)
    assert result.code == ExitCode.USAGE
    assert said in result.error
