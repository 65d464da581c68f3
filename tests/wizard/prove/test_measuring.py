"""Which of a run's samples count."""

from __future__ import annotations

import pytest

from ktdesk_wizard.prove.measuring import undisturbed


@pytest.mark.parametrize(
    ("rates", "upper_quartile"),
    [([7.0], 7.0), ([3.0, 1.0, 2.0], 3.0), ([5.0, 1.0, 4.0, 2.0, 3.0], 4.0), (range(1, 10), 7), (range(1, 16), 11)],
)
def test_the_upper_quartile_counts(rates: list[float], upper_quartile: float) -> None:
    assert undisturbed(rates) == upper_quartile


def test_a_few_disturbed_samples_change_nothing() -> None:
    calm = [50.0, 51.0, 50.5, 49.5, 50.2, 51.0, 50.9]
    assert undisturbed([*calm, 20.0, 31.0]) == pytest.approx(undisturbed(calm), rel=0.01)
