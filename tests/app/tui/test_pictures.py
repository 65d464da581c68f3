"""The pictures of the documentation are the accepted ones of the tests."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
SNAPSHOTS = Path(__file__).parent / "__snapshots__" / "test_snapshots"
PICTURES = {
    "chat": "test_chat_with_an_answer[140x40]",
    "chat-small": "test_chat_with_a_message_chosen_and_reasoning_unfolded[80x24]",
    "chat-options": "test_options_of_a_chat[140x40]",
    "settings": "test_settings[140x40]",
    "help": "test_help[140x40]",
}
"""Name in docs/pictures, and of the snapshot. After a change: copy the snapshot there."""


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_of_the_documentation_is_what_the_app_shows(name: str) -> None:
    shown = (SNAPSHOTS / f"{PICTURES[name]}.svg").read_text(encoding="utf-8")
    assert (ROOT / "docs" / "pictures" / f"{name}.svg").read_text(encoding="utf-8") == shown


@pytest.mark.parametrize("page", ["README.md", "docs/app.md"])
def test_every_picture_that_a_page_shows_is_there(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    pictures = re.findall(r"!\[[^\]]*\]\(([^)]+\.svg)\)", text)
    assert pictures
    for picture in pictures:
        assert ((ROOT / page).parent / picture).is_file(), picture
