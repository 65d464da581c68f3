"""What a MODEL argument names on a hub."""

from __future__ import annotations

import pytest

from ktdesk_wizard.hub.names import HubName, RepositoryName, UrlName, parse_name


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("owner/Big-GGUF", RepositoryName("owner/Big-GGUF")),
        ("owner/Big-GGUF:UD-Q2_K_XL", RepositoryName("owner/Big-GGUF", "UD-Q2_K_XL")),
        ("hf.co/owner/Big-GGUF:Q8_0", RepositoryName("owner/Big-GGUF", "Q8_0")),
        ("https://huggingface.co/owner/Big-GGUF", RepositoryName("owner/Big-GGUF")),
        ("https://huggingface.co/owner/Big-GGUF/tree/v2", RepositoryName("owner/Big-GGUF", None, "v2")),
        (
            "https://huggingface.co/owner/Big-GGUF/blob/main/Q4%20K/a.gguf",
            RepositoryName("owner/Big-GGUF", None, "main", "Q4 K/a.gguf"),
        ),
        ("https://example.org/models/a.gguf", UrlName("https://example.org/models/a.gguf")),
        ("qwen3-30b-a3b", None),
        ("folder/model.gguf", None),
        ("./owner/name", None),
        ("../name", None),
        ("a/b/c", None),
        (" owner/Big-GGUF:Q8_0\n", RepositoryName("owner/Big-GGUF", "Q8_0")),
        ("owner/Big-GGUF:", RepositoryName("owner/Big-GGUF")),
        ("besitzer/größe", None),
    ],
)
def test_names_are_told_apart(text: str, name: HubName | None) -> None:
    assert parse_name(text) == name
