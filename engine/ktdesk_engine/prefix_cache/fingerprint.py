"""Whose pages these are: the model's file, and all that decides what it computes.

Two runs with the same fingerprint compute the same keys and values. The whole file is not read: its header with
all metadata (architecture, rope), its length, its time, and samples of its weights. A file that was copied or
touched makes a new fingerprint, and its pages are computed again: that is the safe side.

min_tile_rows is not part of it: it is measured anew at each start, and moves results only within the rounding that
compute mixed allows. Where no token may move, with `deterministic`, it decides nothing.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator

import numpy as np

from ktdesk_engine.config import EngineConfig
from ktdesk_engine.gguf.file import GGUFFile
from ktdesk_engine.prefix_cache.pages import DIGEST_BYTES

FORMAT = 1
"""Raised when the kernels compute, or pages keep, the same model differently from before."""
NUM_SAMPLES = 64
SAMPLE_BYTES = 4096


def model_fingerprint(file: GGUFFile, config: EngineConfig, page_tokens: int, page_bytes: int) -> bytes:
    """config: with everything decided. page_tokens, page_bytes: of one page of the cache."""
    how: tuple[object, ...] = (FORMAT, config.compute, config.deterministic, config.cache_type, config.isa)
    how += (page_tokens, page_bytes)
    if config.accelerator or config.defer or config.experts_used:
        how += (config.accelerator, config.defer, config.experts_used)
    digest = hashlib.blake2b(json.dumps(how).encode(), digest_size=DIGEST_BYTES)
    for part in _file_parts(file):
        digest.update(part)
    return digest.digest()


def file_fingerprint(file: GGUFFile) -> bytes:
    """Of the model's file alone, however it is computed."""
    digest = hashlib.blake2b(digest_size=DIGEST_BYTES)
    for part in _file_parts(file):
        digest.update(part)
    return digest.digest()


def _file_parts(file: GGUFFile) -> Iterator[bytes]:
    for shard in file.shards:
        stat = shard.stat()
        yield json.dumps((stat.st_size, stat.st_mtime_ns)).encode()
        weights_start = min((tensor.offset for tensor in file.tensors.values() if tensor.path == shard), default=0)
        places = np.linspace(weights_start, max(weights_start, stat.st_size - SAMPLE_BYTES), NUM_SAMPLES, dtype=int)
        with shard.open("rb") as stream:
            yield stream.read(weights_start or stat.st_size)
            for place in places.tolist():
                stream.seek(place)
                yield stream.read(SAMPLE_BYTES)
