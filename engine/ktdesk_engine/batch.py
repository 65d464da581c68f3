"""The tokens that one forward pass computes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ktdesk_engine.kernels import PagedContext

Ids = npt.NDArray[np.int32]


@dataclass(frozen=True)
class Batch:
    """Tokens of one or more sequences, one after the other."""

    token_ids: Ids
    """(T,)"""
    context: PagedContext
    """Where each token stands and which pages its sequence has; the pages reach past its position."""

    @property
    def num_tokens(self) -> int:
        return len(self.token_ids)

    @property
    def positions(self) -> Ids:
        return self.context.positions
