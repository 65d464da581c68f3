"""Text can be read: 4.5 to 1 against what it stands on (WCAG 2.2, AA), in each theme of ours."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from driving import FakeLink, drive, make_app, shown, until
from rich.segment import Segment
from textual.color import Color
from textual.filter import Monochrome, dim_color
from textual.pilot import Pilot
from textual.theme import Theme
from textual.widgets import Button

import ktdesk.tui
from ktdesk.model_link import LinkState
from ktdesk.tui.themes import DARK, LIGHT, THEMES

LEAST = 4.5
INKS = ("foreground", "primary", "accent", "success", "warning", "error")
PAPERS = ("background", "surface", "panel")
READY = LinkState("ready", "Qwen3-30B-A3B", "http://127.0.0.1:1", "/models/q.gguf", 100.0, context=32_768)


def luminance(color: Color) -> float:
    def linear(value: int) -> float:
        share = value / 255
        return share / 12.92 if share <= 0.04045 else float(((share + 0.055) / 1.055) ** 2.4)

    return 0.2126 * linear(color.r) + 0.7152 * linear(color.g) + 0.0722 * linear(color.b)


def contrast(one: Color, other: Color) -> float:
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def test_black_on_white_has_the_contrast_that_the_definition_gives() -> None:
    assert contrast(Color.parse("#000000"), Color.parse("#ffffff")) == pytest.approx(21.0)
    assert contrast(Color.parse("#777777"), Color.parse("#ffffff")) == pytest.approx(4.48, abs=0.01)


@pytest.mark.parametrize("theme", THEMES, ids=lambda theme: theme.name)
def test_every_colour_of_text_can_be_read_on_every_ground(theme: Theme) -> None:
    weak = [
        (ink, paper, round(ratio, 2))
        for ink in INKS
        for paper in PAPERS
        if (ratio := contrast(_colour(theme, ink), _colour(theme, paper))) < LEAST
    ]
    assert not weak


@pytest.mark.parametrize("theme", THEMES, ids=lambda theme: theme.name)
def test_the_title_of_the_place_and_a_failure_can_be_read(theme: Theme) -> None:
    ground = _colour(theme, "background")
    assert contrast(ground, _colour(theme, "primary")) >= LEAST
    error = _colour(theme, "error")
    assert contrast(error, ground.blend(error, 0.15)) >= LEAST


@pytest.mark.parametrize("theme", THEMES, ids=lambda theme: theme.name)
def test_what_is_written_fainter_can_be_read_too(theme: Theme) -> None:
    shares = {int(share) for share in re.findall(r"\$foreground (\d+)%", _sources())}
    assert shares
    for paper in PAPERS:
        ground = _colour(theme, paper)
        for share in shares:
            faint = ground.blend(_colour(theme, "foreground"), share / 100)
            assert contrast(faint, ground) >= LEAST, (paper, share)


@pytest.mark.parametrize(
    ("theme", "no_color"),
    [(DARK.name, False), (LIGHT.name, False), (DARK.name, True)],
    ids=["dark", "light", "without-colours"],
)
def test_places_as_they_are_drawn_can_be_read(theme: str, no_color: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEXTUAL_THEME", theme)
    if no_color:
        monkeypatch.setenv("NO_COLOR", "1")
    weak: list[tuple[str, float]] = []

    async def script(pilot: Pilot[None]) -> None:
        await until(pilot, lambda: "is ready. Write below" in shown(pilot.app))
        for key, words in ((None, "Message"), ("f3", "Choose a model"), ("f6", "Start again"), ("f7", "Everywhere")):
            if key is not None:
                await pilot.press(key)
            await until(pilot, lambda words=words: words in shown(pilot.app))  # type: ignore[misc]
            weak.extend(_weak_words(pilot))

    drive(make_app(FakeLink(READY)), script)
    assert not weak


def _colour(theme: Theme, name: str) -> Color:
    value = getattr(theme, name)
    assert value is not None
    return Color.parse(value)


def _sources() -> str:
    folder = Path(ktdesk.tui.__file__).parent
    return "".join(path.read_text(encoding="utf-8") for path in folder.rglob("*") if path.suffix in (".py", ".tcss"))


def _weak_words(pilot: Pilot[None]) -> Iterator[tuple[str, float]]:
    """All but frames, bars and what cannot be pressed now."""
    unusable = {str(button.label) for button in pilot.app.screen.query(Button) if button.disabled}
    greys = [line_filter for line_filter in pilot.app.get_line_filters() if isinstance(line_filter, Monochrome)]
    for strip in pilot.app.screen._compositor.render_strips():
        for line_filter in greys:
            strip = strip.apply_filter(line_filter, Color(0, 0, 0))
        for segment in strip:
            words = segment.text.strip()
            if any(letter.isalnum() for letter in words) and words not in unusable:
                ratio = _contrast_of(segment)
                if ratio < LEAST:
                    yield words, round(ratio, 2)


def _contrast_of(segment: Segment) -> float:
    style = segment.style
    assert style is not None
    ink, paper = style.color, style.bgcolor
    assert ink is not None
    assert paper is not None
    if style.reverse:
        ink, paper = paper, ink
    if style.dim:
        ink = dim_color(paper, ink)
    return contrast(Color.from_rich_color(ink), Color.from_rich_color(paper))
