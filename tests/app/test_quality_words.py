"""What options that change answers were found to cost, where they are chosen."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from captured import captured_facts
from planned_models import plan

from ktdesk.quality_figures import save_figures, words_of
from ktdesk.tui.setup.plan_words import quality_content
from ktdesk_wizard.plan.wishes import Wishes

USUAL: dict[str, Any] = {
    "compute": "mixed", "cache_type": "f16", "defer": 0, "experts_used": None, "mean_kl": 0.0001, "top1": 0.999,
    "perplexity": 5.0, "reference_perplexity": 5.0, "num_tokens": 9, "text": "t",
}  # fmt: skip
EXACT_CACHE = {**USUAL, "compute": "float32", "cache_type": "float32", "mean_kl": 0.0, "top1": 1.0}
DEFERRED = {**USUAL, "defer": 2, "experts_used": 6, "mean_kl": 0.3, "top1": 0.8}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "mean KL 0.0001 nats, same likeliest token 99.9%"),
        ({"compute": "mixed"}, "mean KL 0.0001 nats, same likeliest token 99.9%"),
        ({"compute": "float32"}, "mean KL 0 nats, same likeliest token 100.0%"),
        ({"defer": "2", "experts": 6}, "mean KL 0.3 nats, same likeliest token 80.0%"),
        ({"defer": "2"}, "not measured: ktdesk eval 'a model.gguf' --defer 2"),
        ({"defer": "auto"}, "not measured: ktdesk eval 'a model.gguf' --defer auto"),
        (
            {"compute": "bf16", "cache_type": "q8_0"},
            "not measured: ktdesk eval 'a model.gguf' --compute bf16 --cache-type q8_0",
        ),
    ],
)
def test_a_way_to_compute_has_its_figure_or_the_command_that_finds_it(options: dict[str, Any], words: str) -> None:
    assert words_of([DEFERRED, EXACT_CACHE, USUAL], "a model.gguf", **options) == words


def test_what_is_usual_and_was_not_measured_says_nothing() -> None:
    assert words_of([], "x.gguf") == ""


def test_a_plan_shows_the_figure_of_what_its_controls_say(tmp_path: Path) -> None:
    file = tmp_path / "model.gguf"
    file.touch()
    save_figures(tmp_path, file, [USUAL])
    of_file = replace(plan(captured_facts("desktop", tmp_path)), source=str(file))
    (shown,) = quality_content(of_file, Wishes(), tmp_path)
    assert "mean KL 0.0001 nats" in shown.plain
    (shown,) = quality_content(of_file, Wishes(cache_type="q8_0"), tmp_path)
    assert f"not measured: ktdesk eval {file} --cache-type q8_0" in shown.plain
    assert quality_content(replace(of_file, source="a catalogue's"), Wishes(cache_type="q8_0"), tmp_path) == []
