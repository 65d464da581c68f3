"""A loaded model: what it streams, when it stops, what it frees, what it refuses."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from model_variants import Tensors, write_variant

from ktdesk_engine import engine as engine_module
from ktdesk_engine.answer import StreamEvent
from ktdesk_engine.config import EngineConfig, Request, SamplingConfig
from ktdesk_engine.engine import Engine
from ktdesk_engine.errors import (
    ConfigError,
    ContextOverflowError,
    EngineError,
    ModelFileError,
    RequestError,
    ResourceError,
)
from ktdesk_engine.gguf.hparams import Metadata
from ktdesk_engine.text_engine import recommended_sampling

TinyModel = Callable[[str], Path]
GREEDY = SamplingConfig(temperature=0)
PROMPT = tuple(range(40, 60))


@pytest.fixture(scope="module")
def engine(tiny_model: TinyModel) -> Iterator[Engine]:
    """Of which a test may expect the same bits for one token and for many: with auto, tiles may round the many."""
    with Engine.load(tiny_model("llama-moe"), EngineConfig(compute="int8", num_threads=1)) as engine:
        yield engine


def ids_of(events: list[StreamEvent]) -> list[int]:
    return [token_id for event in events for token_id in event.token_ids]


def text_of(events: list[StreamEvent]) -> str:
    return "".join(event.text for event in events)


def test_a_greedy_answer_is_the_argmax_of_the_scores(engine: Engine) -> None:
    answer = ids_of(list(engine.stream(Request(PROMPT, GREEDY, max_tokens=12, ignore_eos=True))))
    scores = engine.score([*PROMPT, *answer[:-1]])
    assert answer == scores[len(PROMPT) - 1 :].argmax(axis=-1).tolist()


def test_the_same_request_gives_the_same_tokens_every_time(engine: Engine) -> None:
    request = Request(PROMPT, SamplingConfig(temperature=1.0, seed=7), max_tokens=20)
    first, second = list(engine.stream(request)), list(engine.stream(request))
    assert ids_of(first) == ids_of(second)
    assert ids_of(first) != ids_of(
        list(engine.stream(replace(request, sampling=SamplingConfig(temperature=1.0, seed=8))))
    )


def test_scores_are_log_probabilities_whatever_the_chunk_and_the_threads(engine: Engine, tiny_model: TinyModel) -> None:
    scores = engine.score(PROMPT)
    np.testing.assert_allclose(np.exp(scores).sum(axis=-1), 1, rtol=1e-5)
    for config in (EngineConfig(prefill_chunk=1), EngineConfig(prefill_chunk=7, num_threads=3)):
        with Engine.load(tiny_model("llama-moe"), replace(config, compute="int8")) as other:
            np.testing.assert_array_equal(other.score(PROMPT), scores)


def test_the_last_event_says_why_and_how_long(engine: Engine) -> None:
    *others, last = engine.stream(Request(PROMPT, GREEDY, max_tokens=5, ignore_eos=True))
    assert [event.finish_reason for event in others] == [None] * 4
    assert last.finish_reason == "length"
    assert last.timings is not None
    assert (last.timings.num_prompt_tokens, last.timings.num_answer_tokens) == (20, 5)
    assert last.timings.prefill_seconds > 0
    assert last.timings.decode_tok_s > 0
    assert 0 < last.timings.busy_seconds < last.timings.step_seconds <= last.timings.decode_seconds
    assert 0 < last.timings.python_share < 1


def test_an_answer_is_the_same_by_program_and_without(engine: Engine, tiny_model: TinyModel) -> None:
    request = Request(PROMPT, SamplingConfig(temperature=1.0, seed=3), max_tokens=80, num_logprobs=3, ignore_eos=True)
    config = EngineConfig(compute="int8", num_threads=1, program=False)
    with Engine.load(tiny_model("llama-moe"), config) as eager:
        answers = [
            [(event.text, event.token_ids, event.logprobs) for event in each.stream(request)]
            for each in (engine, eager)
        ]
    assert answers[0] == answers[1]


def test_an_end_token_stops_the_answer_and_is_no_part_of_it(engine: Engine) -> None:
    (end_id,) = engine.tokenizer.end_ids
    request = Request(PROMPT, replace(GREEDY, logit_bias=((end_id, 1000.0),)))
    (event,) = engine.stream(request)
    assert (event.text, event.token_ids, event.finish_reason) == ("", (), "stop")
    (_, last) = engine.stream(replace(request, ignore_eos=True, max_tokens=2))
    assert last.token_ids == (end_id,)


def test_a_stop_string_across_token_borders_ends_the_answer(engine: Engine) -> None:
    """Every token is one letter: a, b, a, b, ..."""
    a, b = engine.tokenizer.encode("ab")
    alternate = replace(GREEDY, logit_bias=((a, 500.0), (b, 499.0)), presence_penalty=2.0, penalty_window=1)
    events = list(engine.stream(Request(PROMPT, alternate, max_tokens=9)))
    assert text_of(events) == "ababababa"
    stopped = list(engine.stream(Request(PROMPT, alternate, max_tokens=9, stop=("zz", "bab"))))
    assert text_of(stopped) == "a"
    assert stopped[-1].finish_reason == "stop"
    held = list(engine.stream(Request(PROMPT, alternate, max_tokens=4, stop=("babaz",))))
    assert text_of(held) == "abab"


def test_a_stop_string_may_end_with_half_a_character_at_the_end_of_an_answer(engine: Engine) -> None:
    """Tokens are a letter and the first half of another, in turn; a half that stays alone becomes U+FFFD."""
    a, half = engine.tokenizer.encode("aé")[:2]
    alternate = replace(GREEDY, logit_bias=((a, 500.0), (half, 499.0)), presence_penalty=2.0, penalty_window=1)
    request = Request(PROMPT, alternate, max_tokens=2)
    *_, last = engine.stream(request)
    assert (last.text, last.finish_reason) == ("\ufffd", "length")
    events = list(engine.stream(replace(request, stop=("a\ufffd",))))
    assert (text_of(events), events[-1].finish_reason) == ("", "stop")


def test_logprobs_come_with_each_token(engine: Engine) -> None:
    events = list(engine.stream(Request(PROMPT, GREEDY, max_tokens=3, num_logprobs=2, ignore_eos=True)))
    scores = engine.score([*PROMPT, *ids_of(events)[:-1]])[len(PROMPT) - 1 :]
    for event, row in zip(events, scores, strict=True):
        (logprobs,) = event.logprobs
        assert logprobs.logprob == pytest.approx(row.max(), abs=1e-5)
        assert logprobs.top[0] == (logprobs.token_id, logprobs.logprob)
        assert len(logprobs.top) == 2


def test_closing_a_stream_frees_its_place(tiny_model: TinyModel) -> None:
    with Engine.load(tiny_model("llama-dense"), EngineConfig(context=64)) as engine:
        request = Request(PROMPT, GREEDY, ignore_eos=True)
        stream = engine.stream(request)
        next(stream)
        with pytest.raises(ContextOverflowError):
            next(engine.stream(request))  # the only page is taken
        stream.close()
        assert len(ids_of(list(engine.stream(request)))) == 64 - len(PROMPT)


def test_streams_side_by_side_do_not_mix(engine: Engine) -> None:
    one, two = Request(PROMPT, GREEDY, max_tokens=8), Request(PROMPT[::-1], GREEDY, max_tokens=8)
    alone = ids_of(list(engine.stream(one))), ids_of(list(engine.stream(two)))
    pairs = list(zip(engine.stream(one), engine.stream(two), strict=True))
    assert (ids_of([a for a, _ in pairs]), ids_of([b for _, b in pairs])) == alone


def test_two_engines_in_one_process_do_not_mix(engine: Engine, tiny_model: TinyModel) -> None:
    before = engine.score(PROMPT)
    with Engine.load(tiny_model("llama-dense"), EngineConfig(isa="scalar")) as other:
        assert not np.allclose(other.score(PROMPT), before)
        np.testing.assert_array_equal(engine.score(PROMPT), before)


def test_an_answer_ends_where_the_context_does(tiny_model: TinyModel) -> None:
    with Engine.load(tiny_model("llama-dense"), EngineConfig(context=30)) as engine:
        events = list(engine.stream(Request(PROMPT, GREEDY, max_tokens=100, ignore_eos=True)))
        assert len(ids_of(events)) == 10
        assert events[-1].finish_reason == "length"
        with pytest.raises(ContextOverflowError, match=r"30 tokens.*context of 30"):
            engine.stream(Request(tuple(range(30)), GREEDY))
        with pytest.raises(ContextOverflowError, match=r"31 tokens.*context of 30"):
            engine.score(range(31))


@pytest.mark.parametrize("token_id", [-1, 266, 2**40])
def test_a_token_id_outside_the_vocabulary_is_refused(engine: Engine, token_id: int) -> None:
    with pytest.raises(RequestError, match=str(token_id)):
        engine.stream(Request((1, token_id)))
    with pytest.raises(RequestError, match=str(token_id)):
        engine.score([token_id])
    if token_id > 0:
        with pytest.raises(RequestError, match="logit_bias"):
            engine.stream(Request((1,), SamplingConfig(logit_bias=((token_id, 1.0),))))


def test_any_integers_in_a_row_are_token_ids(engine: Engine) -> None:
    expected = ids_of(list(engine.stream(Request(PROMPT, GREEDY, max_tokens=3))))
    for prompt in (list(PROMPT), range(40, 60), np.array(PROMPT)):
        assert ids_of(list(engine.stream(Request(prompt, GREEDY, max_tokens=3)))) == expected  # type: ignore[arg-type]
        np.testing.assert_array_equal(engine.score(prompt), engine.score(PROMPT))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "token_ids",
    [[], [1.5], ["1"], [None], "abc", b"abc", {1, 2}, {1: 2}, 5, None, np.ones((2, 2), int), np.ones(2)],
    ids=repr,
)
def test_what_is_no_row_of_token_ids_is_refused(engine: Engine, token_ids: Any) -> None:
    with pytest.raises(RequestError, match="token"):
        engine.score(token_ids)
    with pytest.raises((ConfigError, RequestError), match="token"):
        engine.stream(Request(token_ids))


@pytest.mark.parametrize(
    "settings",
    [{"stop": "abc"}, {"stop": ("a", 5)}, {"max_tokens": 2.5}, {"max_tokens": True}, {"num_logprobs": "3"}],
)
def test_a_request_of_the_wrong_type_is_refused_by_name(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(settings))):
        Request(PROMPT, **settings)


@pytest.mark.parametrize(
    "settings",
    [{"context": 5.5}, {"num_threads": 1.5}, {"prefill_chunk": 2.5}, {"pinning": "cores"}, {"num_nodes": 0}],
)
def test_an_engines_setting_of_the_wrong_type_is_refused_by_name(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(settings))):
        EngineConfig(**settings)


def test_a_closed_engine_answers_no_more(tiny_model: TinyModel) -> None:
    with Engine.load(tiny_model("llama-dense")) as engine:
        pass
    for ask in (
        lambda: engine.score(PROMPT),
        lambda: engine.stream(Request(PROMPT)),
        lambda: engine.chat_ids([{"role": "user", "content": "x"}]),
    ):
        with pytest.raises(ValueError, match=r"tiny-llama-dense\.gguf is closed"):
            ask()


def test_a_vocabulary_larger_than_the_embedding_is_refused_with_both_numbers(tmp_path: Path) -> None:
    def cut(tensors: Tensors) -> None:
        for name in ("token_embd.weight", "output.weight"):
            tensors[name] = tensors[name][:200]

    path = write_variant("llama-moe", tmp_path / "cut.gguf", change=cut)
    with pytest.raises(ModelFileError, match=r"cut\.gguf: there are 266 tokens, but 200 rows in the embedding"):
        Engine.load(path)


def test_rows_of_the_embedding_that_no_token_has_are_never_chosen(tmp_path: Path) -> None:
    def add_rows(tensors: Tensors) -> None:
        for name in ("token_embd.weight", "output.weight"):
            tensors[name] = np.concatenate([tensors[name], 100 * tensors[name][:54]])

    with Engine.load(write_variant("llama-moe", tmp_path / "more.gguf", change=add_rows)) as engine:
        assert engine.model.vocab_size == 320
        assert engine.score(PROMPT).shape == (len(PROMPT), 266)
        with pytest.raises(RequestError, match="300"):
            engine.score([300])


def test_the_engine_says_what_it_decided(engine: Engine) -> None:
    assert engine.config.context == engine.context == 512
    assert engine.config.isa in engine_module.kernels.isas()
    assert engine.config.num_threads == 1


def test_a_context_beyond_the_training_is_refused(tiny_model: TinyModel) -> None:
    with pytest.raises(ConfigError, match=r"1000 tokens.*512"):
        Engine.load(tiny_model("llama-dense"), EngineConfig(context=1000))


def test_context_follows_the_memory_there_is(tiny_model: TinyModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """A page of tiny llama-dense is 64 positions x 2 layers x 2 heads x (32 + 32) halves: 32 KiB."""
    path, page_bytes = tiny_model("llama-dense"), 32 * 1024
    monkeypatch.setattr(engine_module, "available_memory_bytes", lambda: 4 * 3 * page_bytes)
    with Engine.load(path) as engine:
        assert engine.context == 3 * 64
    monkeypatch.setattr(engine_module, "available_memory_bytes", lambda: page_bytes)
    with pytest.raises(ResourceError, match=r"GiB.*smaller context"):
        Engine.load(path)
    with pytest.raises(ResourceError, match=r"context of 512 tokens"):
        Engine.load(path, EngineConfig(context=512))


def test_weights_that_are_too_large_to_compute_with_are_an_error_and_not_noise(tmp_path: Path) -> None:
    """Loading takes them, as they are finite; what is computed with them is not."""

    def enlarge(tensors: Tensors) -> None:
        tensors["output_norm.weight"][:] = np.finfo(np.float32).max

    damaged = write_variant("llama-dense", tmp_path / "damaged.gguf", change=enlarge)
    with Engine.load(damaged) as engine:
        with pytest.raises(EngineError, match="not finite"):
            engine.score(PROMPT)
        with pytest.raises(EngineError, match="not finite"):
            list(engine.stream(Request(PROMPT, GREEDY, max_tokens=3)))


def test_recommended_sampling_comes_from_the_file_where_it_has_one(tiny_model: TinyModel) -> None:
    with Engine.load(tiny_model("llama-dense")) as engine:
        assert engine.recommended_sampling == SamplingConfig()
    path = Path("x.gguf")
    keys = Metadata(path, {"general.sampling.temp": 0.25, "general.sampling.top_k": 7})
    assert recommended_sampling(path, keys) == SamplingConfig(temperature=0.25, top_k=7)
    keys = Metadata(path, {"general.sampling.top_p": 7.0})
    with pytest.raises(EngineError, match=r"x\.gguf.*top_p"):
        recommended_sampling(path, keys)
