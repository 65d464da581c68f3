"""`ktdesk plan`: the same facts, header and wishes give the same plan; and what it predicts is what is used."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from captured import captured_facts
from running import RunKtdesk

from ktdesk.exit_codes import ExitCode
from ktdesk.json_output import json_text
from ktdesk_wizard.probe.facts_json import facts_to_json

TinyModel = Callable[[str], Path]
MIB = 2**20


@pytest.fixture
def desktop(tmp_path: Path) -> Path:
    """The facts of a captured machine, in a file."""
    path = tmp_path / "machine.json"
    path.write_text(json_text(facts_to_json(captured_facts("desktop", tmp_path / "tree"))), encoding="utf-8")
    return path


def test_a_plan_of_a_file_says_what_runs_it(ktdesk: RunKtdesk, tiny_model: TinyModel) -> None:
    path = tiny_model("qwen3moe")
    plan = json.loads(ktdesk("plan", path, "--json", "--context", 256).out)
    assert plan["verdict"]["kind"] == "fits"
    assert plan["command"] == ["ktdesk", "chat", str(path), "--context", "256"]
    assert plan["totals"][0]["num_bytes"] > plan["file_bytes"]


def test_a_plan_for_another_machine_depends_on_nothing_here(
    ktdesk: RunKtdesk, tiny_model: TinyModel, desktop: Path
) -> None:
    plans = [ktdesk("plan", tiny_model("gpt-oss"), "--what-if", desktop, "--json").out for _ in range(2)]
    assert plans[0] == plans[1]
    plan = json.loads(plans[0])
    assert (plan["num_threads"], plan["isa"]) == (16, "avx512")
    assert any("RTX 4090" in rejected["what"] for rejected in plan["rejected"])
    assert plan["decode"]["max_tok_s"] > plan["decode"]["min_tok_s"] > 0


def test_people_see_verdict_ledger_and_command_and_with_explain_each_formula(
    ktdesk: RunKtdesk, tiny_model: TinyModel, desktop: Path
) -> None:
    short = ktdesk("plan", tiny_model("gpt-oss"), "--what-if", desktop).out
    long = ktdesk("plan", tiny_model("gpt-oss"), "--what-if", desktop, "--explain").out
    assert "verdict       fits" in short
    assert "Run it with: ktdesk chat" in short
    assert "a window of 16 would do" in long
    assert "a window of 16 would do" not in short
    assert "Not a cache in q8_0" in long


def test_what_does_not_fit_ends_with_6_unless_forced(ktdesk: RunKtdesk, tiny_model: TinyModel) -> None:
    arguments = ("plan", tiny_model("qwen3moe"), "--max-memory", "0.01")
    refused, forced = ktdesk(*arguments), ktdesk(*arguments, "--force")
    assert refused.code == ExitCode.RESOURCES
    assert "does not fit" in refused.out
    assert forced.code == ExitCode.OK
    assert forced.out == refused.out


def test_another_quantization_is_compared(ktdesk: RunKtdesk, tiny_model: TinyModel, desktop: Path) -> None:
    result = ktdesk("plan", tiny_model("qwen3moe"), "--what-if", desktop, "--why-not", "q4_k_m")
    assert "Q4_K_M: " in result.out
    answer = json.loads(ktdesk("plan", tiny_model("qwen3moe"), "--what-if", desktop, "--why-not", "Q8_0", "--json").out)
    assert answer["why_not"]["what"] == "Q8_0"


def test_the_ways_to_compute_stand_beside_each_other(ktdesk: RunKtdesk, tiny_model: TinyModel) -> None:
    model = tiny_model("qwen3moe")
    plan = json.loads(ktdesk("plan", model, "--what-if", "desktop-64g", "--json", "--compute", "mixed").out)
    ways = {way["compute"]: way for way in plan["ways_to_compute"]}
    assert {"int8", "float32"} <= set(ways)
    assert ways["float32"]["decode_tok_s"] < ways["int8"]["decode_tok_s"] == plan["decode"]["tok_s"]
    text = ktdesk("plan", model, "--what-if", "desktop-64g", "--explain").out
    assert any(line.startswith("float32 ") and line.count("tok/s") == 2 for line in text.splitlines())


def test_placement_rules_shape_the_plan_of_a_card(ktdesk: RunKtdesk, tiny_model: TinyModel, desktop: Path) -> None:
    on_card = ("plan", tiny_model("qwen3moe"), "--what-if", desktop, "--device", "gpu", "--json")
    (part,) = json.loads(ktdesk(*on_card).out)["gpu_parts"]
    assert part["num_resident"] == part["num_experts"] == 48
    made = json.loads(ktdesk(*on_card, "--placement", "experts-on-cpu").out)
    assert made["gpu_parts"][0]["num_resident"] == 0
    assert made["command"][-2:] == ["--placement", "experts-on-cpu"]
    result = ktdesk(*on_card, "--placement", "mine")
    assert result.code == ExitCode.USAGE
    assert "--placement mine: no such rules" in result.error


def test_what_makes_no_sense_is_one_line(ktdesk: RunKtdesk, tiny_model: TinyModel, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.json"
    wrong.write_text('{"memory": {"size": 3}}')
    model = tiny_model("qwen3moe")
    for arguments, code, message in (
        (("--what-if", wrong), ExitCode.USAGE, "unknown key 'size'"),
        (("--what-if", tmp_path / "absent"), ExitCode.USAGE, "neither a file nor a machine; those are desktop-64g"),
        (("--why-not", "Q9"), ExitCode.USAGE, "known are BF16"),
        (("--context", "99999"), ExitCode.USAGE, "trained for 512"),
        (("--cache-type", "f8"), ExitCode.USAGE, "--cache-type must be one of"),
        (("--compute", "int4"), ExitCode.USAGE, "--compute must be one of"),
        (("--device", "tpu"), ExitCode.USAGE, "--device must be one of"),
        (("--threads", "100000"), ExitCode.USAGE, "--threads 100000: there are"),
        (("--what-if", tmp_path), ExitCode.USAGE, "cannot be read"),
        (("--quant", " "), ExitCode.USAGE, "--quant is empty"),
    ):
        result = ktdesk("plan", model, *arguments)
        assert result.code == code
        assert message in result.error
    assert ktdesk("plan", tmp_path / "absent.gguf").code == ExitCode.MODEL_FILE


RUN_AND_TELL_PEAK = """
import atexit, pathlib, re, sys
from ktdesk.__main__ import main

file = pathlib.Path(sys.argv.pop(1))
status = pathlib.Path("/proc/self/status")
atexit.register(lambda: file.write_text(re.search(r"VmHWM:\\s+(\\d+)", status.read_text())[1]))
sys.exit(main())
"""
"""The peak of the process itself: the one that wait4 gives begins with the peak of the process that started it."""


@pytest.mark.parametrize("num_words", [1, 1700], ids=["short", "full"])
def test_the_memory_that_is_used_is_what_was_planned(
    ktdesk: RunKtdesk, demo_model: Path, tmp_path: Path, num_words: int
) -> None:
    """Within 5 %. A short prompt leaves the cache and the rows of other tokens untouched; no server is started."""
    plan = json.loads(ktdesk("plan", demo_model, "--context", "2048", "--json").out)
    untouched = ("server", "cache", "embedding rows") if num_words == 1 else ("server",)
    planned = plan["totals"][0]["num_bytes"]
    planned -= sum(entry["num_bytes"] for entry in plan["ledger"] if entry["what"].startswith(untouched))
    peak = tmp_path / "peak"
    options = [
        "run",
        str(demo_model),
        "--context",
        "2048",
        "--max-tokens",
        "8",
        "--raw",
        " ".join(["hello"] * num_words),
    ]
    subprocess.run(
        [sys.executable, "-c", RUN_AND_TELL_PEAK, str(peak), *options], check=True, stdout=subprocess.DEVNULL
    )
    used = int(peak.read_text()) * 1024
    assert used == pytest.approx(planned, rel=0.05), f"{used / MIB:.0f} MiB used, {planned / MIB:.0f} planned"


def test_a_tiny_model_needs_little_more_than_the_program(
    ktdesk: RunKtdesk, tiny_model: TinyModel, tmp_path: Path
) -> None:
    """What no model needs does not stand in its plan: it was 65 % too high."""
    model, peak = tiny_model("qwen3moe"), tmp_path / "peak"
    plan = json.loads(ktdesk("plan", model, "--context", "512", "--json").out)
    server = next(entry["num_bytes"] for entry in plan["ledger"] if entry["what"] == "server")
    command = [sys.executable, "-c", RUN_AND_TELL_PEAK, peak, "run", model, "--raw", "hello " * 60, "--no-server"]
    subprocess.run([*command, "--max-tokens", "2", "--context", "512"], check=True, stdout=subprocess.DEVNULL)
    used = int(peak.read_text()) * 1024
    assert used == pytest.approx(plan["totals"][0]["num_bytes"] - server, rel=0.2), f"{used / MIB:.0f} MiB used"


def test_a_name_of_the_catalogue_is_planned_before_anything_is_fetched(ktdesk: RunKtdesk, desktop: Path) -> None:
    plan = json.loads(ktdesk("plan", "qwen3-30b-a3b", "--what-if", desktop, "--json").out)
    assert plan["is_estimate"]
    assert plan["quantization"] == "Q8_0"
    assert plan["command"][2] == "qwen3-30b-a3b", "which it is called by once it was fetched"
    assert any("unsloth/Qwen3-30B-A3B-GGUF" in note for note in plan["notes"])
    chosen = json.loads(ktdesk("plan", "Qwen3-30B-A3B", "--quant", "iq4_xs", "--what-if", desktop, "--json").out)
    assert chosen["quantization"] == "IQ4_XS"


def test_the_catalogue_is_listed(ktdesk: RunKtdesk) -> None:
    assert "deepseek-v3 " in ktdesk("plan", "--list").out


def test_a_name_that_nobody_knows_gets_the_nearest(ktdesk: RunKtdesk, tiny_model: TinyModel) -> None:
    result = ktdesk("plan", "qwen3-30b")
    assert result.code == ExitCode.MODEL_FILE
    assert "did you mean qwen3-30b-a3b or qwen3-30b-a3b-2507?" in result.error
    assert "MODEL is missing" in ktdesk("plan", "--json").error
    assert "--quant is for names of the catalogue" in ktdesk("plan", tiny_model("qwen3moe"), "--quant", "Q8_0").error


def test_a_wrong_profile_of_the_user_is_one_line_with_file_and_line(
    ktdesk: RunKtdesk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "profiles" / "models"
    folder.mkdir(parents=True)
    (folder / "mine.yaml").write_text("- name: mine\n  colour: red\n")
    result = ktdesk("--home", tmp_path, "plan", "mine")
    assert result.code == ExitCode.USAGE
    assert "mine.yaml:2: unknown key 'colour'" in result.error


def test_a_machine_that_ships_is_planned_for_by_its_name(ktdesk: RunKtdesk) -> None:
    plan = json.loads(ktdesk("plan", "deepseek-v3", "--what-if", "server-1t", "--json").out)
    assert plan["verdict"]["kind"] == "fits"
    assert [share["num_threads"] for share in plan["nodes"]] == [48, 48]
    assert plan["decode"]["max_tok_s"] > plan["decode"]["min_tok_s"] > 0


def test_speeds_that_are_not_known_are_told_in_short_lines(
    ktdesk: RunKtdesk, tiny_model: TinyModel, tmp_path: Path
) -> None:
    facts = tmp_path / "facts.json"
    facts.write_text(json_text(facts_to_json(captured_facts("container", tmp_path / "tree"))), encoding="utf-8")
    out = ktdesk("plan", tiny_model("qwen3moe"), "--what-if", facts).out
    assert len(re.findall(r"^(?:prefill|decode) .* unknown$", out, re.MULTILINE)) == 3
    told = " ".join(out.split())
    assert told.count("probe --measure") == 1
    assert "`ktdesk probe --measure --json`, written on that machine, has it" in told
    lines = [line for line in out.splitlines() if str(tiny_model("qwen3moe")) not in line]
    assert max(map(len, lines)) <= 80


def test_a_wish_for_a_card_where_there_is_none_is_answered(
    ktdesk: RunKtdesk, tiny_model: TinyModel, tmp_path: Path
) -> None:
    facts = tmp_path / "facts.json"
    facts.write_text(json_text(facts_to_json(captured_facts("cgroup-v1", tmp_path / "tree"))), encoding="utf-8")
    for wish in (("--device", "gpu"), ("--max-gpu-memory", "8")):
        plan = json.loads(ktdesk("plan", tiny_model("qwen3moe"), "--what-if", facts, *wish, "--json").out)
        assert any("a card is asked for, but no NVIDIA card was found" in note for note in plan["notes"])


def test_the_catalogue_is_listed_as_json_too(ktdesk: RunKtdesk) -> None:
    models = json.loads(ktdesk("plan", "--list", "--json").out)["models"]
    assert "qwen3-30b-a3b" in [model["name"] for model in models]


def test_too_many_sequences_are_answered_with_how_many_fit(ktdesk: RunKtdesk, tiny_model: TinyModel) -> None:
    plan = json.loads(ktdesk("plan", tiny_model("qwen3moe"), "--sequences", "10000000", "--json").out)
    option, count = plan["verdict"]["change"].split()
    assert option == "--sequences"
    assert ktdesk("plan", tiny_model("qwen3moe"), option, str(int(count) // 2)).code == ExitCode.OK
