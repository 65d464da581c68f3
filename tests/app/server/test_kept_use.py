"""How experts were used outlives the server: written down, taken back, and followed by what lies on an accelerator."""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from running import RunKtdesk

from ktdesk.expert_use import keep_use, kept_uses, use_folder
from ktdesk.server.opening import OpenSettings, open_model
from ktdesk.server.own_routes import expert_facts
from ktdesk.server.served_model import ServedModel
from ktdesk.server.settings import ServerSettings
from ktdesk_engine.config import EngineConfig, Request, SamplingConfig
from ktdesk_engine.engine import Engine
from ktdesk_engine.placement_rules import Rule

TinyPath = Callable[[str], Path]
CONFIG = EngineConfig(compute="float32", num_threads=1, context=128)


def config(**settings: object) -> EngineConfig:
    return replace(CONFIG, **settings)  # type: ignore[arg-type]


def used(path: Path, folder: Path, config: EngineConfig = CONFIG) -> np.ndarray:
    """What one server counts with one request, which it writes down as it ends."""
    opened = open_model(path, OpenSettings(config, data_folder=folder), lambda progress: None, print)
    model = ServedModel("tiny", opened, ServerSettings())
    done: list[object] = []
    request = Request((1, 2, 3), SamplingConfig(temperature=0), max_tokens=4, ignore_eos=True)
    opened.answers.submit(request, deliver=done.append)
    while len(done) < 4:
        time.sleep(0.01)
    model.close()
    model.close()
    assert isinstance(opened.engine, Engine)
    assert opened.engine.experts.use is not None
    return opened.engine.experts.use.seen()


def test_what_was_counted_is_there_at_the_next_start(tiny_model: TinyPath, tmp_path: Path) -> None:
    first = used(tiny_model("qwen3moe"), tmp_path)
    assert first.sum() == 3 * 4 * (3 + 3)  # layers, experts a token, tokens of prompt and answer
    (record,) = kept_uses(tmp_path)
    np.testing.assert_allclose(record.rates, first, atol=0.01)
    second = used(tiny_model("qwen3moe"), tmp_path)
    np.testing.assert_allclose(second, 2 * first, rtol=0.01, atol=0.05)
    assert not list(use_folder(tmp_path).glob("*.part"))


def test_experts_on_an_accelerator_follow_what_was_kept(tiny_model: TinyPath, tmp_path: Path) -> None:
    used(tiny_model("qwen3moe"), tmp_path)
    (record,) = kept_uses(tmp_path)
    hybrid = config(accelerator="host-thread", accelerator_experts=5, move_ms=0.0)
    with Engine.load(tiny_model("qwen3moe"), hybrid) as engine:
        before = engine.experts.resident_mask
        assert keep_use(engine, tmp_path) is not None
        after = engine.experts.resident_mask
    assert before is not None
    assert after is not None
    assert after.sum() == before.sum() == 5
    best = np.argsort(-record.rates, axis=None, kind="stable")[:5]
    np.testing.assert_array_equal(np.flatnonzero(after), np.sort(best))


def test_what_places_depend_on_is_told_to_who_would_move_experts(tiny_model: TinyPath) -> None:
    rule = Rule(r"blk\.1\.ffn_(gate|up|down)_exps", "cpu")
    hybrid = config(accelerator="host-thread", accelerator_experts=2, placement_rules=(rule,), stream_prompts=False)
    facts = {}
    for name, settings in (("cpu", CONFIG), ("hybrid", hybrid)):
        with Engine.load(tiny_model("qwen3moe"), settings) as engine:
            facts[name] = expert_facts(engine.experts)
    assert np.shape(facts["cpu"]["rates"]) == np.shape(facts["hybrid"]["resident"])
    assert [facts[name]["blocks"] for name in facts] == [[0, 1, 2]] * 2
    assert (facts["cpu"]["resident"], facts["cpu"]["fixed_layers"]) == (None, [])
    assert (np.sum(facts["hybrid"]["resident"]), facts["hybrid"]["fixed_layers"]) == (2, [1])
    assert facts["cpu"]["slot_bytes"] == facts["hybrid"]["slot_bytes"] > 0


def test_all_that_fit_still_fit_when_they_are_chosen_anew(tiny_model: TinyPath, tmp_path: Path) -> None:
    """The room for those that leave counts as free."""
    hybrid = config(accelerator="host-thread", accelerator_bytes=3_000_000, stream_prompts=False)
    with Engine.load(tiny_model("qwen3moe"), hybrid) as engine:
        resident = engine.experts.num_resident
        assert resident > 0
        engine.restore_use(np.arange(48.0).reshape(3, 16))
        assert engine.experts.num_resident == resident


@pytest.mark.parametrize("text", ["", "{", "[]", '{"format": 1}', '{"format": 9, "rates": []}', None])
def test_a_torn_or_foreign_file_is_left_alone_and_said(
    text: str | None, tiny_model: TinyPath, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    used(tiny_model("qwen3moe"), tmp_path)
    (record,) = kept_uses(tmp_path)
    facts = {"format": 1, "model": "x", "saved": "now", "rates": [[1.0, 2.0]]}  # of another model
    record.path.write_text(json.dumps(facts) if text is None else text)
    with caplog.at_level(logging.WARNING, "ktdesk.server"):
        counted = used(tiny_model("qwen3moe"), tmp_path)
    assert counted.sum() == 72
    assert "how experts were used is counted anew" in caplog.text


def test_a_copy_or_another_file_of_the_same_name_begins_anew(tiny_model: TinyPath, tmp_path: Path) -> None:
    path = tmp_path / "tiny-qwen3moe.gguf"
    path.write_bytes(tiny_model("qwen3moe").read_bytes())
    used(tiny_model("qwen3moe"), tmp_path)
    os.utime(path, (1, 1))
    used(path, tmp_path)
    assert len(list(kept_uses(tmp_path))) == 2


def test_a_disk_that_refuses_does_not_stop_the_server(
    tiny_model: TinyPath, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "profiles").write_text("no folder")
    with caplog.at_level(logging.WARNING, "ktdesk.server"):
        used(tiny_model("qwen3moe"), tmp_path)
    assert caplog.text.count("cannot be kept") == 1


def test_a_dense_model_keeps_nothing(tiny_model: TinyPath, tmp_path: Path) -> None:
    with Engine.load(tiny_model("qwen3"), CONFIG) as engine:
        assert keep_use(engine, tmp_path) is None


def test_profile_show_shows_it(ktdesk: RunKtdesk, tiny_model: TinyPath, tmp_path: Path) -> None:
    result = ktdesk("--home", tmp_path, "profile", "show")
    assert "nothing was counted here yet" in result.err
    used(tiny_model("qwen3moe"), tmp_path)
    shown = ktdesk("--home", tmp_path, "profile", "show").out
    assert "model: tiny-qwen3moe.gguf" in shown
    assert "layer 2:" in shown
    assert ktdesk("--home", tmp_path, "profile", "show", "tiny-qwen3moe").out == shown
    (profile,) = json.loads(ktdesk("--home", tmp_path, "profile", "show", "--json").out)["profiles"]
    assert profile["facts"]["experts"] == 16
    assert "tiny-qwen3moe" in ktdesk("--home", tmp_path, "profile", "ls", "use").out
