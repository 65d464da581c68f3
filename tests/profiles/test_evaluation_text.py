"""The text that quality is measured on."""

from __future__ import annotations

import hashlib

from ktdesk_profiles.evaluation_text import load_evaluation_text


def test_the_text_is_the_one_that_published_figures_were_measured_on() -> None:
    text = load_evaluation_text()
    assert text.startswith("The Constitution of the United States of America\n")
    assert (
        hashlib.sha256(text.encode()).hexdigest() == "9932aa32a88072687f28cd95bbca49d55edb10b3c9c7df4e662362c803103612"
    )
