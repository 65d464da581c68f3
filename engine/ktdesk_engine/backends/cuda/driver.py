"""The few functions of the CUDA driver that torch does not offer: flags that a stream writes and awaits by itself.

Called through ctypes, so that nothing is linked to CUDA. Numbers are those of the driver's cuda.h.
"""

from __future__ import annotations

import ctypes
from functools import cache

from ktdesk_engine.backends.cuda.visible import count_by_bus
from ktdesk_engine.errors import AcceleratorError

BUS_ID_BYTES = 16
"""0000:01:00.0, and a 0 at its end."""
STREAM_MEMORY_OPERATIONS = 122
"""CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS: where these work, those of 32 bits do."""
WAIT_EQUAL = 1
"""CU_STREAM_WAIT_VALUE_EQ"""


@cache
def driver() -> ctypes.CDLL:
    """AcceleratorError where there is none."""
    try:
        return ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        raise AcceleratorError(f"no CUDA driver: {error}") from error


def cuda_version() -> int | None:
    """The newest that the driver knows, 12040 for 12.4; None: there is no driver."""
    version = ctypes.c_int()
    try:
        error = driver().cuDriverGetVersion(ctypes.byref(version))
    except AcceleratorError:
        return None
    return None if error else version.value


def start() -> int:
    """CUDA's number of the error that it gave, or 0. May be called again."""
    count_by_bus()
    return int(driver().cuInit(0))


def bus_id(device_index: int) -> str:
    """Where the card sits, such as 0000:01:00.0, by which `nvidia-smi` has it too."""
    text = ctypes.create_string_buffer(BUS_ID_BYTES)
    _check("cuDeviceGetPCIBusId", text, BUS_ID_BYTES, device_index)
    return text.value.decode().lower()


def has_stream_flags(device_index: int) -> bool:
    """Whether streams of the device write and await words of memory without the host."""
    if not hasattr(driver(), "cuStreamWriteValue32_v2"):
        return False
    value = ctypes.c_int()
    _check("cuDeviceGetAttribute", ctypes.byref(value), STREAM_MEMORY_OPERATIONS, device_index)
    return value.value != 0


def device_address(host_address: int) -> int:
    """Of registered host memory."""
    address = ctypes.c_uint64()
    _check("cuMemHostGetDevicePointer_v2", ctypes.byref(address), ctypes.c_void_p(host_address), 0)
    return address.value


def write_flag(stream: int, host_address: int, value: int) -> None:
    """Submits: the word becomes value, after all that was submitted before can be seen."""
    where = ctypes.c_uint64(device_address(host_address))
    _check("cuStreamWriteValue32_v2", ctypes.c_void_p(stream), where, ctypes.c_uint32(value), 0)


def await_flag(stream: int, host_address: int, value: int) -> None:
    """Submits: what follows waits until the word is value."""
    where = ctypes.c_uint64(device_address(host_address))
    _check("cuStreamWaitValue32_v2", ctypes.c_void_p(stream), where, ctypes.c_uint32(value), WAIT_EQUAL)


def call_host(stream: int, function: int, argument: int) -> None:
    """Submits a call of void(void*) on the host."""
    _check("cuLaunchHostFunc", ctypes.c_void_p(stream), ctypes.c_void_p(function), ctypes.c_void_p(argument))


def _check(name: str, *arguments: object) -> None:
    result = getattr(driver(), name)(*arguments)
    if result != 0:
        raise AcceleratorError(f"the CUDA driver refused {name}: error {result}")
