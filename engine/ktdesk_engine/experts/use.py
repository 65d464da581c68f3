"""How often each expert was used lately: what decides which of them lie on the accelerator."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from ktdesk_engine.errors import ConfigError
from ktdesk_engine.experts.moe import MoeLayer
from ktdesk_engine.kernels.routing import Counts
from ktdesk_engine.placement import Rates as Rates

HALF_LIFE_TOKENS = 20_000
"""After so many tokens what was counted before weighs half: a long conversation, or a few."""


class ExpertUse:
    """Counts of a model's layers with experts. Kernels add to them; they are decayed when somebody looks."""

    def __init__(self, num_layers: int, num_experts: int, num_used: int) -> None:
        self.counts: Counts = np.zeros((num_layers, num_experts), np.int64)
        """(L, E), since somebody looked. Rows are handed to kernels: it stays in its place."""
        self._num_used = num_used
        self._decayed: Rates = np.zeros((num_layers, num_experts))

    @classmethod
    def of(cls, layers: Sequence[MoeLayer]) -> ExpertUse:
        rule = layers[0].rule
        return cls(len(layers), rule.num_experts, rule.num_used)

    def by_routers(self, layers: Sequence[MoeLayer]) -> None:
        """Lets the routers count."""
        for layer, counts in zip(layers, self.counts, strict=True):
            layer.router.counts = counts

    def rates(self) -> Rates:
        """(L, E): tokens that used each expert, those of long ago counting less. A plain array of its own."""
        added = self.counts.astype(np.float64)
        self.counts[:] = 0
        num_tokens = added[0].sum() / self._num_used
        self._decayed *= 0.5 ** (num_tokens / HALF_LIFE_TOKENS)
        self._decayed += added
        return self._decayed.copy()

    def seen(self) -> Rates:
        """As `rates`, but nothing changes: for another thread than the one that computes."""
        return self._decayed + self.counts

    def restore(self, rates: npt.ArrayLike) -> None:
        """What `rates` gave, perhaps in another process. ConfigError where it is not of this model."""
        given = np.array(rates, np.float64)
        if given.shape != self._decayed.shape or not np.isfinite(given).all() or (given < 0).any():
            raise ConfigError(
                f"the use of experts must be {self._decayed.shape[0]} x {self._decayed.shape[1]} numbers of at least "
                f"0, but it has the shape {' x '.join(map(str, given.shape))}: it is another model's, or damaged"
            )
        self._decayed = given
        self.counts[:] = 0
