"""What a setup is asked for."""

from __future__ import annotations

from dataclasses import dataclass, field

from ktdesk_wizard.plan.wishes import Wishes


@dataclass(frozen=True)
class Wanted:
    model: str
    """As the user names it."""
    wishes: Wishes = field(default_factory=Wishes)
    measures_again: bool = False
    """Although this machine was measured before."""
    insists: bool = False
    """Goes on although the plan says that it does not fit, or the rehearsal fails."""
    is_confirmed: bool = False
    """Nobody has to be asked."""
    starts_over: bool = False
    """Forgets what an interrupted setup had done."""
