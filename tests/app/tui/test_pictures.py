"""The pictures of the documentation are the accepted ones of the tests."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
SNAPSHOTS = Path(__file__).parent / "__snapshots__"
PICTURES = {
    "chat": "test_snapshots/test_chat_with_an_answer[140x40]",
    "chat-small": "test_snapshots/test_chat_with_a_message_chosen_and_reasoning_unfolded[80x24]",
    "chat-options": "test_snapshots/test_options_of_a_chat[140x40]",
    "settings": "test_snapshots/test_settings[140x40]",
    "help": "test_snapshots/test_help[140x40]",
    "setup-machine": "test_setup_snapshots/test_machine[140x40]",
    "setup-models": "test_setup_snapshots/test_models[140x40]",
    "setup-plan": "test_setup_snapshots/test_plan[140x40]",
    "setup-download": "test_setup_snapshots/test_download[80x24]",
    "setup-load": "test_setup_snapshots/test_load_and_measure[80x24]",
    "monitor": "test_watching_snapshots/test_monitor[140x40]",
    "server-options": "test_watching_snapshots/test_options_that_a_model_is_loaded_with[140x40]",
    "server": "test_watching_snapshots/test_server[140x40]",
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
