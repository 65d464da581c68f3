"""The tokens that one forward pass computes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import numpy.typing as npt

from ktdesk_engine.kernels import PagedContext

Ids = npt.NDArray[np.int32]


class Device(Protocol):
    """Where a batch is computed."""

    def upload(self, ids: Ids) -> Ids: ...


@dataclass(frozen=True)
class Batch:
    """Tokens of one or more sequences, one after the other."""

    token_ids: Ids
    """(T,)"""
    context: PagedContext
    """Where each token stands and which pages its sequence has; the pages reach past its position."""
    is_decode: bool = False
    """Each token is the last of its sequence, and its answer is wanted: what may be deferred is."""

    def on(self, device: Device) -> Batch:
        """The same, where the device's operations take it from."""
        context = PagedContext(*map(device.upload, self.context.as_tuple))
        return replace(self, token_ids=device.upload(self.token_ids), context=context)

    @property
    def num_tokens(self) -> int:
        return len(self.token_ids)

    @property
    def positions(self) -> Ids:
        return self.context.positions
