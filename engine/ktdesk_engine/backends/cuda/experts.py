"""Feed-forward networks of many experts on a device."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton

from ktdesk_engine.backends.cuda.device_weights import DeviceMatrices
from ktdesk_engine.backends.cuda.layer_kernels import activation_kernel
from ktdesk_engine.backends.cuda.products import MAX_TOKENS, bfloat16_product, multiply, unpacked
from ktdesk_engine.kernels import Activation

ACTIVATION_BLOCK = 1024


@dataclass(frozen=True)
class DeviceWeight:
    """`kernels.ExpertWeight` on the device."""

    matrices: DeviceMatrices
    bias: torch.Tensor | None
    """(matrices, rows)"""
    scale: torch.Tensor | None
    """(matrices,)"""

    def of_vectors(self, x: torch.Tensor, matrix_ids: torch.Tensor | None = None, x_share: int = 1) -> torch.Tensor:
        """As `products.multiply`."""
        return multiply(self.matrices, x, self.bias, matrix_ids, self.scale, x_share)

    def of_many(self, x: torch.Tensor, matrix: int) -> torch.Tensor:
        """x (T, row_length) times one matrix, unpacked to bfloat16."""
        product = bfloat16_product(x, unpacked(self.matrices, matrix))
        if self.scale is not None:
            product *= self.scale[matrix]
        return product if self.bias is None else product + self.bias[matrix]


@dataclass(frozen=True)
class DeviceMlp:
    """`kernels.ExpertMlp` on the device."""

    gate: DeviceWeight
    up: DeviceWeight
    down: DeviceWeight
    activation: Activation
    limit: float
    weighs_inputs: bool

    def __call__(self, x: torch.Tensor, chosen: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        """x (T, H), chosen and weights (T, K) -> (T, H), the weighted sum. Ids below 0 add nothing."""
        form = self._of_few if len(x) <= MAX_TOKENS else self._of_many
        return form(x, chosen, weights)

    def only(self, x: torch.Tensor) -> torch.Tensor:
        """(T, H) -> (T, H) through the first expert, with the weight 1."""
        if len(x) > MAX_TOKENS:
            return self._through(x, 0)
        return self.down.of_vectors(self._activated(self.gate.of_vectors(x), self.up.of_vectors(x)))

    def _of_few(self, x: torch.Tensor, chosen: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        """All experts of all tokens in one launch a matrix. No size depends on the choice: a graph can hold it."""
        num_tokens, num_used = chosen.shape
        ids, share = chosen.reshape(-1).contiguous(), num_used
        if self.weighs_inputs:
            x, share = (x[:, None] * weights[..., None]).flatten(0, 1), 1
        hidden = self._activated(self.gate.of_vectors(x, ids, share), self.up.of_vectors(x, ids, share))
        outputs = self.down.of_vectors(hidden, ids).reshape(num_tokens, num_used, -1)
        return outputs.sum(1) if self.weighs_inputs else (outputs * weights[..., None]).sum(1)

    def _of_many(self, x: torch.Tensor, chosen: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        """One expert after the other, with all of its tokens."""
        out = torch.zeros_like(x)
        for expert in torch.unique(chosen).tolist():
            if expert < 0:
                continue
            tokens, places = (chosen == expert).nonzero(as_tuple=True)
            shares = weights[tokens, places][:, None]
            result = self._through(x[tokens] * shares if self.weighs_inputs else x[tokens], expert)
            out.index_add_(0, tokens, result if self.weighs_inputs else result * shares)
        return out

    def _through(self, x: torch.Tensor, expert: int) -> torch.Tensor:
        return self.down.of_many(self._activated(self.gate.of_many(x, expert), self.up.of_many(x, expert)), expert)

    def _activated(self, gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
        out = torch.empty_like(gate)
        activation_kernel[(triton.cdiv(gate.numel(), ACTIVATION_BLOCK),)](
            gate, up, out, gate.numel(), self.limit, SWIGLU=int(Activation.SWIGLU),
            SWIGLU_OAI=int(Activation.SWIGLU_OAI), CLAMPED_GATE=int(Activation.CLAMPED_GATE),
            KIND=int(self.activation), BLOCK=ACTIVATION_BLOCK,
        )  # fmt: skip
        return out
