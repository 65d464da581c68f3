"""What to do next where a step of a setup failed."""

from __future__ import annotations

from ktdesk_engine.errors import ConfigError, ModelFileError, UnsupportedError
from ktdesk_wizard.errors import DoesNotFitError, HomeFolderError, RefusedError, TrialMemoryError, WishError
from ktdesk_wizard.setup.step import StepName

ADVICE: dict[StepName, str] = {
    "find": "check the name (`ktdesk plan --list` and `ktdesk models` show some) and the network",
    "probe": "`ktdesk probe --sources` shows what could be read",
    "measure": "`ktdesk doctor` shows what is wrong with this machine",
    "plan": "`ktdesk plan MODEL --explain` shows the bytes and what else would fit",
    "rehearse": "take another file or quantization; --force goes on all the same",
    "confirm": "add --yes",
    "pull": "the same command goes on where it was",
    "load": "`ktdesk doctor` shows what is wrong with this machine; --context asks for less memory",
    "smoke": "`ktdesk models verify` checks the file",
    "prove": "the same command tries again",
    "save": "name a folder that can be written with --home",
}
_ADVICE_OF_KIND: tuple[tuple[type[BaseException], str], ...] = (
    (RefusedError, "once HF_TOKEN holds a token that may read it, the same command goes on"),
    (HomeFolderError, "make room there, or name a folder that can be written with --home"),
    (TrialMemoryError, "close something, or ask for less with --context; `ktdesk doctor` shows what takes memory"),
    (WishError, "`ktdesk setup --help` shows what can be asked for"),
    (ConfigError, "`ktdesk setup --help` shows what can be asked for"),
    (UnsupportedError, "take another model; --force goes on all the same"),
    (ModelFileError, "name another file or quantization, or fetch it again"),
)
"""Of errors that say more than the step in which they came up."""


def advice_of(name: StepName, error: BaseException) -> str:
    """What to do next. What the plan says would fit goes before all else."""
    if isinstance(error, DoesNotFitError):
        return error.advice
    return next((advice for kind, advice in _ADVICE_OF_KIND if isinstance(error, kind)), ADVICE[name])
