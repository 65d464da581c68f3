"""Options of the hybrid half, on the accelerator that is a thread: each wrong one is one clear line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from running import RunKtdesk

from ktdesk.exit_codes import ExitCode
from ktdesk_engine.backends.cuda.availability import Installed

TinyPath = Callable[[str], Path]
RUN = ("--raw", "--max-tokens", "4", "--temperature", "0", "--threads", "1", "--compute", "float32")


def test_answers_are_those_of_the_cpu_wherever_experts_lie(
    ktdesk: RunKtdesk, tiny_model: TinyPath, tmp_path: Path
) -> None:
    rules = tmp_path / "rules.yaml"
    rules.write_text("- {match: '^blk\\.0\\.ffn_.*_exps', place: gpu}\n- {match: '^blk\\.2\\.ffn_.*_exps', place: cpu}")
    run = ("run", tiny_model("qwen3moe"), "the cat", *RUN)
    want = ktdesk(*run).out
    assert want
    hybrid = (*run, "--accelerator", "host-thread")
    assert ktdesk(*hybrid, "--accelerator-experts", "20", "--placement-strategy", "uniform").out == want
    assert ktdesk(*hybrid, "--placement", rules, "--accelerator-memory", "0.01", "--move-ms", "0").out == want
    assert ktdesk(*hybrid, "--placement", "experts-on-cpu").out == want


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        (("--accelerator", "tpu"), ExitCode.USAGE, "--accelerator must be one of cuda, host-thread: 'tpu'"),
        (("--accelerator-experts", "3"), ExitCode.USAGE, "--accelerator-experts is for an accelerator, and none"),
        (("--accelerator-memory", "3"), ExitCode.USAGE, "--accelerator-memory is for an accelerator, and none"),
        (("--placement", "experts-on-cpu"), ExitCode.USAGE, "--placement is for an accelerator"),
        (("--placement-strategy", "uniform"), ExitCode.USAGE, "--placement-strategy is for an accelerator, and none"),
        (("--move-ms", "1"), ExitCode.USAGE, "--move-ms is for an accelerator, and none"),
        (("--no-share-memory",), ExitCode.USAGE, "--share-memory is for an accelerator, and none"),
        (("--accelerator", "host-thread", "--accelerator-memory", "-1"), ExitCode.USAGE, "of at least 0: -1"),
        (("--accelerator", "host-thread", "--accelerator-memory", "nan"), ExitCode.USAGE, "of at least 0: nan"),
        (("--accelerator", "host-thread", "--accelerator-memory", "0"), ExitCode.RESOURCES, "keys and values take"),
        (
            ("--accelerator", "host-thread", "--accelerator-memory", "0.01", "--accelerator-experts", "999"),
            ExitCode.USAGE,
            "--accelerator-experts 999: there is room for",
        ),
        (
            ("--accelerator", "host-thread", "--placement-strategy", "best"),
            ExitCode.USAGE,
            "-strategy must be one of",
        ),
        (("--accelerator", "host-thread", "--defer", "3"), ExitCode.USAGE, "--defer 3: this model uses 4 experts"),
        (("--accelerator", "host-thread", "--move-ms", "-1"), ExitCode.USAGE, "--move-ms must be a finite number"),
        (("--accelerator", "host-thread", "--placement", "mine"), ExitCode.USAGE, "there are experts-on-cpu"),
        (("--accelerator", "host-thread", "--placement", "no.yaml"), ExitCode.USAGE, "No such file"),
    ],
)
def test_what_makes_no_sense_is_one_line(
    options: tuple[str, ...], code: ExitCode, said: str, ktdesk: RunKtdesk, tiny_model: TinyPath
) -> None:
    result = ktdesk("run", tiny_model("qwen3moe"), "the cat", *RUN, *options)
    assert said in result.error
    assert result.code == code


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("- {match: nothing, place: gpu}", "rules.yaml:1: match 'nothing' finds no tensor of this model"),
        ("- {match: '_exps', place: gpu}", "rules put 48 experts on the accelerator, but there is room for"),
        ("- {match: attn_q, place: cpu}", "would stay on the CPU, but only routed experts"),
        ("- {match: 'blk.0.ffn_up_exps', place: cpu}", "gate, up and down lie in one place"),
        ("- {match: '(', place: cpu}", "rules.yaml:1: match '(' is no regular expression"),
        ("- {match: x, place: disk}", "place must be one of gpu, cpu"),
        ("- {pattern: x, place: gpu}", "unknown key 'pattern'"),
        ("[]", "there are no rules in it"),
        ("{", "not YAML"),
        ("\udc80", "no text in UTF-8"),
    ],
)
def test_a_wrong_placement_file_is_one_line_with_its_place(
    text: str, said: str, ktdesk: RunKtdesk, tiny_model: TinyPath, tmp_path: Path
) -> None:
    rules = tmp_path / "rules.yaml"
    rules.write_bytes(text.encode("utf-8", "surrogateescape"))
    options = ("--accelerator", "host-thread", "--accelerator-memory", "0.003", "--placement", rules)
    result = ktdesk("run", tiny_model("qwen3moe"), "the cat", *RUN, "--context", "64", *options)
    assert said in result.error
    assert result.code == ExitCode.USAGE


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (Installed(None), "no NVIDIA driver is here"),
        (Installed(12040, missing="torch"), "torch is missing: pip install 'ktdesk[gpu]'"),
        (Installed(12040, 100, "GPU-0123"), "CUDA_VISIBLE_DEVICES is 'GPU-0123', and no card is called so"),
    ],
)
def test_without_a_gpu_the_line_says_what_is_missing(
    found: Installed, said: str, ktdesk: RunKtdesk, tiny_model: TinyPath, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ktdesk_engine.accelerators.look", lambda: found)
    result = ktdesk("run", tiny_model("qwen3moe"), "the cat", *RUN, "--accelerator", "cuda")
    assert said in result.error
    assert result.code == ExitCode.RESOURCES
