"""`ktdesk probe` on the machine that runs the tests."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from running import RunKtdesk

from ktdesk.exit_codes import ExitCode
from ktdesk_engine import kernels
from ktdesk_engine.benchmark import ceilings, kernel_shares
from ktdesk_engine.machine import usable_cores
from ktdesk_engine.quants.formats import WeightType
from ktdesk_wizard.probe import nvml


def test_it_prints_what_the_engine_sees_too(ktdesk: RunKtdesk, tmp_path: Path) -> None:
    result = ktdesk("probe", "--json", "--folder", tmp_path / "not" / "there")
    assert result.code == 0
    facts = json.loads(result.out)
    assert facts["cpu"]["num_cores"]["value"] == len(usable_cores())
    assert facts["cpu"]["isa"]["value"] == kernels.isas()[-1]
    assert facts["memory"]["available_bytes"]["value"] <= facts["memory"]["total_bytes"]["value"]
    assert facts["disk"]["folder"] == str(tmp_path / "not" / "there")
    assert facts["disk"]["free_bytes"]["value"] > 0
    assert not (tmp_path / "not").exists()


def test_people_get_a_line_a_fact(ktdesk: RunKtdesk) -> None:
    result = ktdesk("probe", "--sources")
    assert result.code == 0
    assert "[reported: /proc/meminfo MemTotal]" in result.out


def test_a_large_file_in_the_folder_tells_how_fast_the_disk_is(ktdesk: RunKtdesk, tmp_path: Path) -> None:
    (tmp_path / "model.gguf").write_bytes(bytes(65 << 20))
    disk = json.loads(ktdesk("probe", "--json", "--folder", tmp_path).out)["disk"]
    speed = disk["read_bytes_s"]
    assert speed["value"] is None or speed["value"] > 0
    assert "model.gguf" in speed["source"]


def test_without_the_package_the_library_is_missing_and_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr(nvml, "import_module", missing)
    with pytest.raises(nvml.NoNvmlError, match="nvidia-ml-py is not installed"):
        nvml.load_nvml()


def test_what_was_measured_is_in_the_next_plan(
    ktdesk: RunKtdesk, tmp_path: Path, tiny_model: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ceilings, "decide_buffer_bytes", lambda *_: 8 << 20)
    monkeypatch.setattr(ceilings, "PEAK_SECONDS", 0.001)
    monkeypatch.setattr(kernel_shares, "TYPES", (WeightType.Q8_0,))
    facts = json.loads(ktdesk("--home", tmp_path, "probe", "--measure", "--json").out)
    assert facts["memory"]["read_bytes_s"]["confidence"] == "measured"
    assert facts["cpu"]["peak_ops_s"]["value"] > 0
    by_threads = facts["memory"]["reads_by_threads"]["value"]
    assert by_threads[0]["num_threads"] == 1
    assert by_threads[-1]["num_threads"] == facts["cpu"]["num_threads"]["value"]
    assert facts["gpus"]["copies"]["value"] is None
    plan = json.loads(ktdesk("--home", tmp_path, "plan", tiny_model("qwen3moe"), "--json").out)
    shares = facts["cpu"]["kernel_shares"]["value"]
    kinds = [("experts", "Q8_0"), ("matrix", "Q8_0"), ("attention", "f16")]
    on_tiles = [False, True] if "amx" in kernels.isas() else [False]
    assert {(share["kind"], share["type"], share["on_tiles"]) for share in shares} == {
        (*kind, tiles) for tiles in on_tiles for kind in kinds
    }
    assert all(share["share"] > 0 for share in shares)
    assert plan["decode"]["basis"] == "bandwidth measured, arithmetic measured"
    assert plan["decode"]["min_tok_s"] > 0


def test_a_measurement_that_is_stopped_leaves_the_earlier_one(
    ktdesk: RunKtdesk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("ktdesk_wizard.probe.measurement.measure", stopped)
    (tmp_path / "measured.json").write_text("earlier")
    result = ktdesk("--home", tmp_path, "probe", "--measure")
    assert result.code == ExitCode.INTERRUPTED
    assert "nothing of this measurement is kept" in result.err
    assert [path.name for path in tmp_path.iterdir()] == ["measured.json"]
    assert (tmp_path / "measured.json").read_text() == "earlier"
