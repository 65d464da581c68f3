"""The base of all bodies that are read: what is not known is refused, and nothing is guessed."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field


class Body(BaseModel):
    """An unknown field is an error; a number that came as text is no number."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class AnswerFields(Body):
    """Of all bodies that ask for an answer, beyond what their interfaces have."""

    deadline_seconds: float | None = Field(
        None, gt=0, le=1e6, description="Beyond the interface's own: give up where the answer is not whole by then."
    )


Object = dict[str, Any]
