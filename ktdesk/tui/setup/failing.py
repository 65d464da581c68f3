"""What is said where a step fails, and what can be done then."""

from __future__ import annotations

from ktdesk_wizard.errors import DoesNotFitError, HomeFolderError, TrialError
from ktdesk_wizard.setup.step import Failure, StepName

ADVICE: dict[StepName | None, str] = {
    "find": "Take a model of the list; without a network, those on this disk and the demo can be set up.",
    "probe": "`ktdesk probe --sources` shows what could be read.",
    "measure": "`ktdesk doctor` shows what is wrong with this machine.",
    "plan": "Without a network, models on this disk and the demo can be set up.",
    "rehearse": "Take another file or quantization.",
    "pull": "What came is kept; it goes on from there.",
    "load": "A smaller context takes less memory.",
    "smoke": "`ktdesk models verify` checks the file.",
    "prove": "It can be used without being measured.",
    "save": "Make room, or name another data folder with --home.",
}
MAY_BE_INSISTED = (DoesNotFitError, TrialError, HomeFolderError)
"""As far as they come before the model is loaded."""
BEFORE_LOADING = ("plan", "rehearse", "pull")


def failure_words(step: StepName | None, failure: Failure) -> str:
    """Cause, and next step."""
    from ktdesk.failures import describe

    cause = describe(failure.error).replace("; --force goes on all the same", "")
    return f"{cause}\n{ADVICE.get(step, 'Choose another model.')}"


def next_steps(step: StepName | None, failure: Failure) -> dict[str, str]:
    """What is offered, and the words for it; what helps most often first."""
    if isinstance(failure.error, DoesNotFitError):
        return {"plan": "Change the plan", "insist": "Go on all the same", "models": "Another model"}
    steps = {"retry": "Try again"}
    if step in BEFORE_LOADING and isinstance(failure.error, MAY_BE_INSISTED):
        steps["insist"] = "Go on all the same"
    if step in ("smoke", "prove", "load"):
        steps["plan"] = "Change the plan"
    return {**steps, "models": "Another model"}
