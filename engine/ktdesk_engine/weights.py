"""The tensors of a model as its layers ask for them: by name and shape, checked, and counted.

Knows no architecture. Shapes are written (rows, row length), as numpy has them. A tensor that no layer asked
for is a part of the model that would be left out, so `finish` refuses it.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ktdesk_engine.backends.backend import Backend
from ktdesk_engine.errors import ModelFileError, UnsupportedError
from ktdesk_engine.gguf.file import GGUFFile
from ktdesk_engine.kernels import ExpertWeight, Floats, Weight
from ktdesk_engine.packing import Packable
from ktdesk_engine.quants.formats import dequantize
from ktdesk_engine.weight_damage import damaged_weight


class Weights:
    """Tensors whose names start with `prefix`, which callers leave out, and the backend that computes with them."""

    def __init__(self, file: GGUFFile, backend: Backend, prefix: str = "", whole: Weights | None = None) -> None:
        """whole: of which this is a part."""
        self.backend = backend
        self.packables: list[Packable] = [] if whole is None else whole.packables
        """The layers whose weights may be packed, in the order in which they were made."""
        self._file = file
        self._prefix = prefix
        self.used_names: set[str] = set() if whole is None else whole.used_names
        """The tensors that layers asked for, up to now."""

    def block(self, layer: int) -> Weights:
        """The tensors of one layer: `blk.N.`"""
        return Weights(self._file, self.backend, f"{self._prefix}blk.{layer}.", self)

    def has(self, name: str) -> bool:
        return self._prefix + name in self._file.tensors

    def require(self, *names: str) -> None:
        """ModelFileError where one is missing: for what layers take if it is there."""
        for name in names:
            self._file.tensor(self._prefix + name)

    def num_rows(self, name: str) -> int:
        """Of a matrix whose height no metadata tells."""
        tensor = self._file.tensor(self._prefix + name)
        if len(tensor.shape) != 2:
            raise ModelFileError(
                tensor.path, f"tensor {tensor.name!r} has {len(tensor.shape)} dimensions where 2 are needed"
            )
        return tensor.shape[1]

    def matrix(self, name: str, num_rows: int, row_length: int) -> Weight:
        """(num_rows, row_length), as it lies in the file."""
        return self._weight(name, (num_rows, row_length))

    def experts(self, name: str, num_experts: int, num_rows: int, row_length: int) -> ExpertWeight:
        """(E, num_rows, row_length) with the bias (E, num_rows) that `name.bias` holds, if the file has one."""
        weight = self._weight(f"{name}.weight", (num_experts, num_rows, row_length))
        return ExpertWeight(weight, self._bias(f"{name}.bias", (num_experts, num_rows)))

    def heads(self, name: str, num_heads: int, num_rows: int, row_length: int) -> Weight:
        """(heads, num_rows, row_length): a matrix for each head, as it lies in the file."""
        return self._weight(name, (num_heads, num_rows, row_length))

    def vector(self, name: str, length: int) -> Floats:
        """(length,) in float32."""
        return self._floats(name, (length,))

    def bias(self, name: str, length: int) -> Floats | None:
        """(length,) in float32, or None where the file has none."""
        return self._bias(name, (length,))

    def float_matrix(self, name: str, num_rows: int, row_length: int) -> Floats:
        """(num_rows, row_length), unpacked to float32: for what is small and computed with exactly."""
        return self._floats(name, (num_rows, row_length))

    def finish(self, is_ignored: Callable[[str], bool] = lambda name: False) -> None:
        """Refuses a file with tensors that nothing asked for, but for those that may be left out."""
        unused = [name for name in self._file.tensors if name not in self.used_names and not is_ignored(name)]
        if unused:
            others = f" and {len(unused) - 1} more" if len(unused) > 1 else ""
            raise UnsupportedError(
                f"{self._file.path}: tensor {unused[0]!r}{others} has no place in the engine's "
                f"{self._file.architecture!r}: a variant that it does not know"
            )

    def _bias(self, name: str, shape: tuple[int, ...]) -> Floats | None:
        return self._floats(name, shape) if self.has(name) else None

    def _weight(self, name: str, shape: tuple[int, ...]) -> Weight:
        tensor = self._file.tensor(self._prefix + name)
        found = tuple(reversed(tensor.shape))
        if found != shape:
            raise ModelFileError(
                tensor.path,
                f"tensor {tensor.name!r} has the shape {_shown(found)}, but the metadata asks for {_shown(shape)}; "
                "the file is damaged, or was made by a converter that this engine does not know",
            )
        self.used_names.add(tensor.name)
        return Weight(tensor.type, self._file.data(tensor.name))

    def _floats(self, name: str, shape: tuple[int, ...]) -> Floats:
        weight = self._weight(name, shape)
        floats = np.ascontiguousarray(dequantize(weight.blocks, weight.type), np.float32)
        if not np.isfinite(floats).all():
            place = np.unravel_index(np.isfinite(floats).argmin(), floats.shape)
            at = " of row ".join(str(index) for index in reversed(place))
            tensor = self._file.tensor(self._prefix + name)
            raise damaged_weight(tensor, f"value {at}")
        return floats


def _shown(shape: tuple[int, ...]) -> str:
    return " x ".join(str(size) for size in shape)
