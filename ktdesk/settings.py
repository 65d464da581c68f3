"""What the options before the command's name say, and where the user's data lies."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ktdesk.errors import UsageError

HOME_VARIABLE = "KTDESK_HOME"
DEMO_VARIABLE = "KTDESK_DEMO_MODEL"
KEY_VARIABLE = "KTDESK_API_KEY"


@dataclass(frozen=True)
class Settings:
    debug: bool = False
    home: str | None = None
    """A folder, where `~` is the user's. None: the data folder that the system has for programs."""

    def __post_init__(self) -> None:
        if self.home == "":
            raise UsageError("--home is empty: name a folder, or leave it out")

    @property
    def data_folder(self) -> Path:
        """Absolute."""
        if self.home is None:
            return _system_folder()
        try:
            return Path(self.home).expanduser().absolute()
        except RuntimeError:
            raise UsageError(f"--home {self.home}: nobody knows the home folder of that user") from None
        except FileNotFoundError:
            raise UsageError(f"--home {self.home}: the current folder was deleted; name one from / on") from None

    @property
    def models_folder(self) -> Path:
        """The store: what `ktdesk models` lists."""
        return self.data_folder / "models"

    @property
    def prefix_folder(self) -> Path:
        """Where servers keep prefixes on disk."""
        return self.data_folder / "prefixes"

    @property
    def runtime_folder(self) -> Path:
        """For files that say what runs now. Absolute."""
        if self.home is not None:
            return self.data_folder / "run"
        import warnings

        from platformdirs import user_runtime_path

        with warnings.catch_warnings():  # where the system names no such folder, the one below /tmp is right
            warnings.simplefilter("ignore")
            return user_runtime_path("ktdesk")


def _system_folder() -> Path:
    from platformdirs import user_data_path

    try:
        return user_data_path("ktdesk")
    except RuntimeError:
        raise UsageError(
            f"this user has no home folder to keep data in: name one with --home DIR or {HOME_VARIABLE}"
        ) from None
