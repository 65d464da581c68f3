"""Machines to plan for that are not here: files of facts, which `ktdesk plan --what-if NAME` takes by their name.

The wizard knows what facts there are; here they are only files.
"""

from __future__ import annotations

from importlib import resources
from pathlib import Path

FOLDER = "machines"


def machine_texts(user_folder: Path | None = None) -> dict[str, tuple[str, str]]:
    """Name -> (where it is from, text): those that ship, and the user's *.yaml, which override them."""
    shipped = resources.files("ktdesk_profiles").joinpath(FOLDER)
    found = {
        file.name.removesuffix(".yaml"): (f"{FOLDER}/{file.name}", file.read_text(encoding="utf-8"))
        for file in sorted(shipped.iterdir(), key=lambda file: file.name)
        if file.name.endswith(".yaml")
    }
    for path in sorted(user_folder.glob("*.yaml")) if user_folder is not None else ():
        found[path.stem] = (str(path), path.read_text(encoding="utf-8"))
    return found
