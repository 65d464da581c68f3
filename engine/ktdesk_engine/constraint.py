"""What narrows the choice of tokens of one answer."""

from __future__ import annotations

from typing import Protocol

from ktdesk_engine.kernels import Floats


class Constraint(Protocol):
    """Follows one answer, token by token."""

    def allowed(self, logits: Floats) -> Floats:
        """logits (V,) of the next token, with -inf for those that may not come. The argument stays as it is."""
        ...

    def accept(self, token_id: int) -> None:
        """The token that was chosen; an end token too."""
        ...
