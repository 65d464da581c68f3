"""The base of all bodies that are read: what is not known is refused, and nothing is guessed."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict


class Body(BaseModel):
    """An unknown field is an error; a number that came as text is no number."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


Object = dict[str, Any]
