"""What torch, Triton and the driver raise where a GPU fails, as errors of ours: out of memory, lost, or failed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from ktdesk_engine.errors import AcceleratorError, AcceleratorLostError, AcceleratorMemoryError, EngineError

OUT_OF_MEMORY = 2
"""cudaErrorMemoryAllocation"""
LOST = {46, 214, 220, *range(700, 703), 710, *range(714, 720), 999}
"""After these a process can do nothing more with its GPU: the context is gone. Numbers of the CUDA runtime: 46 it is
unavailable, 214 and 220 uncorrectable errors of memory and link, 700 to 719 a kernel went astray, 999 unknown."""
LOST_WORDS = (
    "illegal memory access",
    "misaligned address",
    "illegal instruction",
    "hardware stack error",
    "invalid program counter",
    "unspecified launch failure",
    "launch timed out",
    "device-side assert",
    "uncorrectable",
    "unknown error",
    "devices are busy or unavailable",
    "is lost",
)
"""Where an error has no number: Triton's has the driver's words alone."""
CUDA_WORDS = ("CUDA error", "CUDA driver error", "Triton Error [CUDA]", "CUDA out of memory")


@contextmanager
def engine_errors() -> Iterator[None]:
    """What is no failure of a GPU goes through as it is."""
    try:
        yield
    except EngineError:
        raise
    except RuntimeError as error:
        raise as_engine_error(error) or error from error


def as_engine_error(error: BaseException) -> AcceleratorError | None:
    """None: it is no failure of a GPU. A capture that is broken off hides why: that is the error before."""
    found = [one for one in _chain(error) if _is_of_cuda(one)]
    if not found:
        return None
    if any(_is_out_of_memory(one) for one in found):
        return AcceleratorMemoryError("the GPU is out of memory")
    first = found[-1]
    line = str(first).strip().splitlines()[0]
    if any(_is_lost(one) for one in found):
        return AcceleratorLostError(f"the GPU is lost ({line}): load the model anew, on the CPU")
    return AcceleratorError(f"the GPU failed: {line}")


def _chain(error: BaseException) -> Iterator[BaseException]:
    seen: BaseException | None = error
    while seen is not None:
        yield seen
        seen = seen.__cause__ or seen.__context__


def _code(error: BaseException) -> int | None:
    return getattr(error, "error_code", None)


def _is_of_cuda(error: BaseException) -> bool:
    is_named = isinstance(error, RuntimeError) and str(error).startswith(CUDA_WORDS)
    return is_named or isinstance(error, torch.OutOfMemoryError) or _code(error) is not None


def _is_out_of_memory(error: BaseException) -> bool:
    is_told = _code(error) == OUT_OF_MEMORY or "out of memory" in str(error)
    return is_told or isinstance(error, torch.OutOfMemoryError)


def _is_lost(error: BaseException) -> bool:
    return _code(error) in LOST or any(words in str(error) for words in LOST_WORDS)
