"""What MODEL on the command line means: a file, or `demo`."""

from __future__ import annotations

import difflib
import os
from pathlib import Path

from ktdesk.settings import DEMO_VARIABLE, Settings
from ktdesk.terminal import Progress, note, on_one_line
from ktdesk_engine.errors import ModelFileError

DEMO = "demo"


def model_path(model: str, settings: Settings) -> Path:
    """The file to load. The demo model is made if it is not there."""
    if model == DEMO:
        return demo_path(settings)
    path = Path(model)
    similar = [] if os.path.lexists(path) else _similar(path)
    if similar:
        raise ModelFileError(path, f"no such file; did you mean {' or '.join(str(match) for match in similar)}?")
    return path


def demo_path(settings: Settings, source: Path | None = None) -> Path:
    """source: the file to make the demo model from; None fetches it."""
    made_elsewhere = os.environ.get(DEMO_VARIABLE)
    if made_elsewhere:
        if not os.path.isfile(made_elsewhere):
            raise ModelFileError(made_elsewhere, f"no such file, but {DEMO_VARIABLE} names it: correct or unset it")
        if source is not None:
            note(f"{DEMO_VARIABLE} names the demo model: {on_one_line(str(source))} is not needed")
        return Path(made_elsewhere)
    from ktdesk_profiles.demo import load_demo_profile
    from ktdesk_wizard.demo_model import demo_model

    progress = Progress()
    try:
        folder = settings.data_folder / "models" / "demo"
        return demo_model(load_demo_profile(), folder, source=source, report=progress)
    finally:
        progress.finish()


def _similar(path: Path) -> list[Path]:
    """Up to three GGUF files beside it whose names are almost the same."""
    try:
        names = [name for name in os.listdir(path.parent) if name.endswith(".gguf")]
    except OSError:
        return []
    return [path.with_name(name) for name in difflib.get_close_matches(path.name, names)]
