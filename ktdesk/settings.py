"""What the options before the command's name say, and where the user's data lies."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

HOME_VARIABLE = "KTDESK_HOME"
DEMO_VARIABLE = "KTDESK_DEMO_MODEL"


@dataclass(frozen=True)
class Settings:
    debug: bool = False
    home: Path | None = None
    """None: the data folder that the system has for programs."""

    @property
    def data_folder(self) -> Path:
        if self.home is not None:
            return self.home.absolute()
        from platformdirs import user_data_path

        return user_data_path("ktdesk")
