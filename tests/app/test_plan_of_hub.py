"""`ktdesk plan` of a repository: what it offers, judged from headers alone."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from loopback_hub import LoopbackHub
from running import RunKtdesk

from ktdesk.exit_codes import ExitCode

TinyModel = Callable[[str], Path]
MIB = 2**20


@pytest.fixture
def offers(hub: LoopbackHub, tiny_model: TinyModel, tmp_path: Path) -> dict[str, Path]:
    """Three files of one model, of which two are shorter in name only: padded, as other quantizations are larger."""
    path = tiny_model("qwen3moe")
    for name, padding in (("F32", 0), ("BF16", 40 * MIB), ("Q8_0", 80 * MIB)):
        hub.add("owner/Tiny-GGUF", f"tiny-{name}.gguf", path.read_bytes() + bytes(padding))
    hub.add("owner/Tiny-GGUF", "README.md", b"about")
    return {"F32": path}


def test_each_quantization_is_judged_and_the_largest_that_fits_is_planned(
    ktdesk: RunKtdesk, offers: dict[str, Path], hub: LoopbackHub
) -> None:
    plan = json.loads(ktdesk("plan", "owner/Tiny-GGUF", "--context", 256, "--max-memory", 0.2, "--json").out)
    assert [offer["quantization"] for offer in plan["offers"]] == ["Q8_0", "BF16", "F32"]
    assert plan["verdict"]["kind"] == "fits"
    assert plan["source"].startswith("owner/Tiny-GGUF:")
    assert plan["command"][:3] == ["ktdesk", "chat", plan["source"]]
    assert sum(len(data) for data in hub.repositories["owner/Tiny-GGUF"].values()) > 100 * MIB
    assert not plan["is_estimate"]


def test_a_named_quantization_is_planned_as_its_file_would_be(
    ktdesk: RunKtdesk, offers: dict[str, Path], tmp_path: Path
) -> None:
    theirs = json.loads(ktdesk("plan", "owner/Tiny-GGUF:F32", "--context", 256, "--json").out)
    ours = json.loads(ktdesk("plan", offers["F32"], "--context", 256, "--json").out)
    for key in ("ledger", "context", "architecture", "file_bytes"):
        assert theirs[key] == ours[key]
    text = ktdesk("plan", "owner/Tiny-GGUF", "--quant", "f32").out
    assert "> F32" in text
    assert "  Q8_0" in text


def test_a_url_is_planned_from_its_header(ktdesk: RunKtdesk, offers: dict[str, Path], hub: LoopbackHub) -> None:
    url = f"{hub.url}/plain/owner/Tiny-GGUF/tiny-F32.gguf"
    plan = json.loads(ktdesk("plan", url, "--json").out)
    assert plan["source"] == url
    assert plan["file_bytes"] > 0


def test_another_quantization_is_compared_as_the_repository_has_it(ktdesk: RunKtdesk, offers: dict[str, Path]) -> None:
    plan = json.loads(ktdesk("plan", "owner/Tiny-GGUF:F32", "--why-not", "q8_0", "--json").out)
    assert plan["why_not"]["what"] == "Q8_0"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("owner/Tiny-GGUF:Q2_K",), "has no Q2_K: "),
        (("owner/Tiny-GGUFF",), "has no repository owner/Tiny-GGUFF"),
        (("unsloth/Qwen3-30B-A3B-GGUFF",), "did you mean unsloth/Qwen3-30B-A3B-GGUF"),
        (("owner/Words",), "has no GGUF files: it has the original weights (safetensors)"),
        (("owner/Half-GGUF:F32",), "1 of 2 shards are missing at the source"),
        (("http://127.0.0.1:9/a.gguf",), "no connection to 127.0.0.1:9"),
    ],
)
def test_what_cannot_be_planned_is_one_line(
    ktdesk: RunKtdesk, offers: dict[str, Path], hub: LoopbackHub, arguments: tuple[str, ...], message: str
) -> None:
    hub.add("owner/Words", "model.safetensors", b"x")
    hub.add("owner/Half-GGUF", "half-F32-00001-of-00002.gguf", b"x")
    result = ktdesk("plan", *arguments)
    assert result.code == ExitCode.FETCH
    assert message in result.error


def test_what_does_not_fit_ends_with_6(ktdesk: RunKtdesk, offers: dict[str, Path]) -> None:
    result = ktdesk("plan", "owner/Tiny-GGUF", "--max-memory", 0.01)
    assert result.code == ExitCode.RESOURCES
    assert "does not fit" in result.out


def test_an_address_of_another_kind_of_file_is_wrong_usage(ktdesk: RunKtdesk) -> None:
    result = ktdesk("plan", "https://127.0.0.1:9/a.bin")
    assert result.code == ExitCode.USAGE
    assert "not the address of a GGUF file" in result.error
