"""How much of a prompt is computed together: enough that experts see some of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from ktdesk_engine import prefill_chunk
from ktdesk_engine.config import EngineConfig
from ktdesk_engine.engine import Engine
from ktdesk_engine.errors import ConfigError
from ktdesk_engine.prefill_chunk import decide_prefill_chunk

PROMPT = [token % 200 for token in range(150)]


@pytest.mark.parametrize(
    ("num_experts", "num_used", "chunk"),
    [
        (0, 1, 512),
        (8, 2, 512),
        (128, 8, 512),  # 32 tokens of each expert
        (160, 8, 1024),
        (128, 4, 1024),
        (256, 8, 1024),
        (384, 8, 2048),
        (512, 1, 2048),  # however many there are
    ],
)
def test_an_expert_sees_two_blocks_of_rows_of_a_chunk(num_experts: int, num_used: int, chunk: int) -> None:
    assert decide_prefill_chunk(None, num_experts, num_used) == chunk
    assert decide_prefill_chunk(None, num_experts, num_used, is_accelerated=True) == 512
    assert decide_prefill_chunk(7, num_experts, num_used) == 7


def test_an_engine_says_what_it_decided_and_answers_the_same(
    tiny_model: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, scores = tiny_model("qwen3moe"), []  # 16 experts of which 4 are used
    for wanted_rows, chunk in ((1, 512), (200, 1024)):
        monkeypatch.setattr(prefill_chunk, "EXPERT_ROWS", wanted_rows)
        with Engine.load(path, EngineConfig(compute="float32", num_threads=1)) as engine:
            assert (engine.prefill_chunk, engine.config.prefill_chunk) == (chunk, chunk)
            scores.append(engine.score(PROMPT).tobytes())
    assert scores[0] == scores[1]


def test_a_chunk_of_no_token_is_refused() -> None:
    with pytest.raises(ConfigError, match="prefill_chunk"):
        EngineConfig(prefill_chunk=0)
