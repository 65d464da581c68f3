"""A GGUF model, in one file or many shards: mapped, checked, and read where it lies.

    with GGUFFile.open("model-00001-of-00009.gguf") as file:
        num_layers = file.hparams().integer("block_count", minimum=1)
        blocks = file.data("blk.0.ffn_down_exps.weight")  # (E, rows, bytes of a row)

What is wrong with a file is found at opening and raised as a ModelFileError; versions 2 and 3, little endian.
A file with tensors of unreadable types does open: it can be shown, and such a tensor refuses when asked for.
"""

from __future__ import annotations

import mmap
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ktdesk_engine.errors import ModelFileError
from ktdesk_engine.gguf.header import Header, read_header
from ktdesk_engine.gguf.hparams import Metadata
from ktdesk_engine.gguf.shards import check_set, shard_paths
from ktdesk_engine.gguf.tensors import TensorInfo
from ktdesk_engine.quants.formats import row_bytes

__all__ = ["GGUFFile", "TensorInfo"]


class GGUFFile:
    """An open model. Metadata is that of the first shard; tensors are those of all."""

    def __init__(self, path: Path, headers: Sequence[Header]) -> None:
        self.path = path
        """As it was given to `open`."""
        self.shards = tuple(header.path for header in headers)
        self.version = headers[0].version
        self.metadata: Mapping[str, Any] = MappingProxyType(headers[0].metadata)
        """int, float, bool, str; arrays of numbers as numpy arrays, of strings as a `StringArray`."""
        self.tensors: Mapping[str, TensorInfo] = MappingProxyType(
            {tensor.name: tensor for header in headers for tensor in header.tensors}
        )
        self._buffers = [header.buffer for header in headers]
        self._bytes = {header.path: np.frombuffer(header.buffer, np.uint8) for header in headers}

    @classmethod
    def open(cls, path: str | Path) -> GGUFFile:
        """Open the model that this file, any one of its shards, belongs to."""
        path = Path(path)
        headers = [read_header(shard) for shard in shard_paths(path)]
        check_set(headers)
        return cls(path, headers)

    @property
    def keys(self) -> Metadata:
        """Checked access to the metadata, by full keys."""
        return Metadata(self.path, self.metadata)

    @property
    def architecture(self) -> str:
        """Such as 'llama' or 'qwen3moe'."""
        return self.keys.string("general.architecture")

    def hparams(self) -> Metadata:
        """Checked access to the architecture's own keys, which are written without its name."""
        return Metadata(self.path, self.metadata, prefix=f"{self.architecture}.")

    def tensor(self, name: str) -> TensorInfo:
        """Where a tensor lies; ModelFileError where the model has none of that name."""
        if name not in self.tensors:
            raise ModelFileError(self.path, f"tensor {name!r} is missing; the file is incomplete or of another kind")
        return self.tensors[name]

    def data(self, name: str) -> NDArray[np.uint8]:
        """A read-only view of a tensor's bytes in the mapped file, a row last.

        (K,) -> (row bytes,), (K, N) -> (N, row bytes), (K, N, E) -> (E, N, row bytes). A view stays good
        after `close`.
        """
        if not self._bytes:
            raise ValueError(f"{self.path} is closed")
        tensor = self.tensor(name)
        width = row_bytes(tensor.type, tensor.shape[0])
        data = self._bytes[tensor.path][tensor.offset : tensor.end]
        return data.reshape(*reversed(tensor.shape[1:]), width)

    def drop(self, view: NDArray[np.uint8]) -> None:
        """Takes the pages of a view from `data` out of memory; they are read again if they are looked at again."""
        self._advise(view, mmap.MADV_DONTNEED)

    def fetch(self, view: NDArray[np.uint8]) -> None:
        """Begins to read the pages of a view from `data`, and does not wait for them."""
        self._advise(view, mmap.MADV_WILLNEED)

    def place_of(self, address: int) -> tuple[TensorInfo, int]:
        """Of a byte in memory, which lies in a tensor's data: the tensor, and the byte's place in it."""
        for path, data in self._bytes.items():
            offset = address - data.ctypes.data
            for tensor in self.tensors.values():
                if tensor.path == path and tensor.offset <= offset < tensor.end:
                    return tensor, offset - tensor.offset
        raise ValueError(f"no tensor of {self.path} lies at {address:#x}")

    def _advise(self, view: NDArray[np.uint8], advice: int) -> None:
        """To the pages that lie wholly in the view."""
        first, last = np.lib.array_utils.byte_bounds(view)
        for buffer in self._buffers:
            start = np.frombuffer(buffer, np.uint8).ctypes.data
            if start <= first and last <= start + len(buffer):
                page = mmap.PAGESIZE
                begin, end = -(-(first - start) // page) * page, (last - start) // page * page
                if begin < end:
                    buffer.madvise(advice, begin, end - begin)

    def close(self) -> None:
        """Let go of the mapped files. Each is unmapped once no array or metadata that lies in it is left."""
        self._bytes = {}
        self._buffers = []

    def __enter__(self) -> GGUFFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
