"""Each step of sampling on numbers that can be checked by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from ktdesk_engine.config import SamplingConfig
from ktdesk_engine.errors import ConfigError, RequestError
from ktdesk_engine.sampler import Sampler, log_softmax, token_logprobs

ALL = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0}
LOGITS = np.log(np.array([0.1, 0.4, 0.2, 0.3], np.float32))


def probabilities(past: tuple[int, ...] = (), **settings: object) -> list[float]:
    config = SamplingConfig(**{**ALL, **settings})  # type: ignore[arg-type]
    return [round(p, 4) for p in Sampler(config).probabilities(LOGITS, past).tolist()]


def test_without_limits_the_models_own_probabilities_are_drawn_from() -> None:
    assert probabilities() == [0.1, 0.4, 0.2, 0.3]


def test_temperature_sharpens_and_flattens() -> None:
    assert probabilities(temperature=0.5) == [round(p * p / 0.3, 4) for p in (0.1, 0.4, 0.2, 0.3)]
    assert probabilities(temperature=1e-300) == [0, 1, 0, 0]
    assert probabilities(temperature=1e-320) == [0, 1, 0, 0]
    assert probabilities(temperature=1e300) == [0.25, 0.25, 0.25, 0.25]


def test_greedy_takes_the_likeliest_and_the_lowest_id_among_equals() -> None:
    sampler = Sampler(SamplingConfig(temperature=0))
    assert sampler.choose(LOGITS, []) == 1
    assert sampler.choose(np.array([1, 3, 3], np.float32), []) == 1


def test_top_k_keeps_the_likeliest_and_the_lowest_ids_among_equals() -> None:
    assert probabilities(top_k=2) == [0, 0.5714, 0, 0.4286]
    assert probabilities(top_k=1) == [0, 1, 0, 0]
    assert probabilities(top_k=99) == [0.1, 0.4, 0.2, 0.3]


def test_top_p_keeps_the_token_that_reaches_the_sum() -> None:
    assert probabilities(top_p=0.39) == [0, 1, 0, 0]
    assert probabilities(top_p=0.41) == [0, 0.5714, 0, 0.4286]


def test_min_p_is_relative_to_the_likeliest() -> None:
    assert probabilities(min_p=0.6) == [0, 0.5714, 0, 0.4286]
    assert probabilities(min_p=1.0) == [0, 1, 0, 0]


def test_repetition_penalty_divides_positive_and_multiplies_negative_logits() -> None:
    sampler = Sampler(SamplingConfig(**{**ALL, "repetition_penalty": 2.0}))  # type: ignore[arg-type]
    got = sampler.probabilities(np.array([2.0, -1.0, 0.5], np.float32), [0, 1, 1])
    want = np.exp([1.0, -2.0, 0.5])
    np.testing.assert_allclose(got, want / want.sum(), rtol=1e-6)


def test_presence_counts_a_token_once_and_frequency_each_time() -> None:
    def logits_after(**settings: float) -> np.ndarray:
        return np.log(Sampler(SamplingConfig(**{**ALL, **settings})).probabilities(LOGITS, [1, 1, 1]))  # type: ignore[arg-type]

    base = logits_after()
    assert np.isclose(
        (logits_after(presence_penalty=0.5) - base)[1] - (logits_after(presence_penalty=0.5) - base)[0], -0.5
    )
    assert np.isclose(
        (logits_after(frequency_penalty=0.5) - base)[1] - (logits_after(frequency_penalty=0.5) - base)[0],
        -1.5,
    )


def test_the_penalty_window_forgets_what_came_before_it() -> None:
    assert probabilities(past=(1, 2, 2), presence_penalty=2.0, penalty_window=2)[1] > 0.4
    assert probabilities(past=(1, 2, 2), presence_penalty=2.0, penalty_window=-1)[1] < 0.4
    assert probabilities(past=(1, 2, 2), presence_penalty=2.0, penalty_window=0) == [0.1, 0.4, 0.2, 0.3]


def test_logit_bias_bans_and_forces() -> None:
    assert probabilities(logit_bias=((1, -math.inf),)) == [0.1667, 0, 0.3333, 0.5]
    assert Sampler(SamplingConfig(temperature=0, logit_bias=((0, 100.0),))).choose(LOGITS, []) == 0


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_bias_that_bans_every_token_is_refused(temperature: float) -> None:
    everything = tuple((token_id, -math.inf) for token_id in range(len(LOGITS)))
    with pytest.raises(RequestError, match="logit_bias bans every token"):
        Sampler(SamplingConfig(temperature=temperature, logit_bias=everything)).choose(LOGITS, [])


def test_the_same_seed_draws_the_same_tokens_and_draws_follow_the_probabilities() -> None:
    def draw(seed: int) -> list[int]:
        sampler = Sampler(SamplingConfig(**{**ALL, "seed": seed}))  # type: ignore[arg-type]
        return [sampler.choose(LOGITS, []) for _ in range(2000)]

    assert draw(1) == draw(1) != draw(2)
    np.testing.assert_allclose(np.bincount(draw(3)) / 2000, [0.1, 0.4, 0.2, 0.3], atol=0.04)


def test_without_a_seed_one_is_drawn_and_told() -> None:
    seeds = {Sampler(SamplingConfig()).config.seed for _ in range(4)}
    assert None not in seeds
    assert len(seeds) == 4


def test_logprobs_are_the_models_own_likeliest_first() -> None:
    logprobs = token_logprobs(LOGITS + 7, 2, 2)
    assert logprobs.logprob == pytest.approx(math.log(0.2), abs=1e-6)
    assert [token_id for token_id, _ in logprobs.top] == [1, 3]
    assert np.exp(log_softmax(np.array([1000.0, 0.0], np.float32))).tolist() == [1.0, 0.0]


@pytest.mark.parametrize(
    "settings",
    [
        {"temperature": -1.0},
        {"temperature": math.nan},
        {"top_p": 0.0},
        {"top_p": 1.5},
        {"min_p": 2.0},
        {"top_k": -1},
        {"repetition_penalty": 0.0},
        {"repetition_penalty": 1e-310},
        {"repetition_penalty": 101},
        {"presence_penalty": 3.0},
        {"penalty_window": -2},
        {"seed": -1},
        {"seed": 2**64},
        {"logit_bias": ((-1, 0.0),)},
        {"logit_bias": ((1, math.nan),)},
        {"logit_bias": ((1, math.inf),)},
        {"logit_bias": ((1, 1e308),)},
        {"logit_bias": ((1, "2"),)},
        {"logit_bias": {1: 2.0}},
        {"logit_bias": ((1, 2.0, 3.0),)},
        {"logit_bias": 5},
        {"temperature": "0"},
        {"temperature": True},
        {"temperature": 10**400},
        {"top_k": 3.5},
        {"seed": 1.5},
        {"penalty_window": None},
    ],
)
def test_a_setting_out_of_range_is_refused_by_name(settings: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=next(iter(settings))):
        SamplingConfig(**settings)  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", range(20))
def test_the_likeliest_few_are_those_of_the_whole_vocabulary_whatever_penalties_and_bias_change(seed: int) -> None:
    """Rounded logits have many equals; the changed ones come from everywhere in the vocabulary."""
    rng = np.random.default_rng(seed)
    logits = rng.standard_normal(500).round(1).astype(np.float32)
    past = rng.integers(0, 500, 60).tolist()
    bias = tuple((int(token_id), float(value)) for token_id, value in zip(past[::7], rng.normal(0, 3, 9), strict=True))
    config = SamplingConfig(
        **{**ALL, "top_k": 10, "repetition_penalty": 1.7, "frequency_penalty": 0.5, "presence_penalty": -0.3},  # type: ignore[arg-type]
        penalty_window=40,
        logit_bias=bias,
    )
    adjusted = logits.astype(np.float64)
    for token_id in set(past[-40:]):
        value = adjusted[token_id]
        value = value / 1.7 if value > 0 else value * 1.7
        adjusted[token_id] = value - (-0.3 + 0.5 * past[-40:].count(token_id))
    for token_id, value in bias:
        adjusted[token_id] += value
    kept = np.lexsort((np.arange(500), -adjusted))[:10]
    want = np.zeros(500)
    want[kept] = np.exp(adjusted[kept]) / np.exp(adjusted[kept]).sum()
    np.testing.assert_allclose(Sampler(config).probabilities(logits, past), want, rtol=1e-9, atol=0)
    greedy = SamplingConfig(
        temperature=0, repetition_penalty=1.7, frequency_penalty=0.5, presence_penalty=-0.3, penalty_window=40,
        logit_bias=bias,
    )  # fmt: skip
    assert Sampler(greedy).choose(logits, past) == kept[0]


def test_draws_are_those_of_numpys_choice() -> None:
    config = SamplingConfig(**{**ALL, "seed": 5})  # type: ignore[arg-type]
    sampler, rng = Sampler(config), np.random.default_rng(5)
    ids = np.argsort(-LOGITS)
    shares = sampler.probabilities(LOGITS, [])[ids]
    assert [sampler.choose(LOGITS, []) for _ in range(50)] == [int(rng.choice(ids, p=shares)) for _ in range(50)]
