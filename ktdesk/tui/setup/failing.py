"""What is said where a step fails, and what can be done then."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ktdesk.tui.markdown.harmless import harmless
from ktdesk.tui.setup.own_words import own_words
from ktdesk_wizard.errors import DoesNotFitError, HomeFolderError, TrialError
from ktdesk_wizard.setup.step import Failure, StepName

if TYPE_CHECKING:
    from ktdesk.model_link import LinkState

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


def failure_words(model: str, step: StepName | None, failure: Failure) -> str:
    """Of which model, cause, and next step."""
    from ktdesk.failures import describe

    cause = own_words(describe(failure.error))
    named = cause if model in cause else f"{model}: {cause}"
    advice = "" if isinstance(failure.error, DoesNotFitError) else ADVICE.get(step, "Choose another model.")
    return harmless(f"{named}\n{advice}".strip())


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


def link_failure(state: LinkState) -> tuple[str, dict[str, str]]:
    """Of a server that could not load it: cause and next steps."""
    steps = {"load": "Try again", "plan": "Change the plan", "models": "Another model"}
    if "--no-memory-guard" in state.reason:
        steps = {"unguarded": "Load it all the same", **steps}
    reason = own_words(state.reason)
    named = reason if state.model in reason else f"{state.model}: {reason}"
    return harmless(named), steps
