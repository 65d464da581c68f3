"""What is said of weights that are no finite numbers."""

from __future__ import annotations

from ktdesk_engine.errors import ModelFileError
from ktdesk_engine.gguf.tensors import TensorInfo


def damaged_weight(tensor: TensorInfo, place: str) -> ModelFileError:
    """place: such as "block 2 of row 17"."""
    return ModelFileError(
        tensor.path,
        f"tensor {tensor.name!r} has numbers that are not finite, first in {place}: the file is damaged (compare its "
        "checksum with the one where it came from, and fetch it again)",
    )
