"""The English text that quality is measured on unless the user names one; texts/README.md says where it is from."""

from __future__ import annotations

from importlib import resources

TEXT_FILE = "english.txt"


def load_evaluation_text() -> str:
    """Public-domain prose, about 16,000 tokens."""
    file = resources.files("ktdesk_profiles") / "texts" / TEXT_FILE
    return file.read_text(encoding="utf-8")
