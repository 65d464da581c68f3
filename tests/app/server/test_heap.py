"""How many heaps the C library's allocator keeps."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from pathlib import Path

import pytest

COUNT_HEAPS = """
import ctypes, sys, threading
from ktdesk.server.heap import keep_one_heap

libc = ctypes.CDLL(None)
libc.fopen.restype = ctypes.c_void_p
libc.malloc.restype = ctypes.c_void_p
if sys.argv[2] == "one":
    keep_one_heap()
together = threading.Barrier(4)

def take() -> None:
    together.wait()
    libc.malloc(5000)
    together.wait()

threads = [threading.Thread(target=take) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
file = ctypes.c_void_p(libc.fopen(sys.argv[1].encode(), b"w"))
libc.malloc_info(0, file)
libc.fclose(file)
"""


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_info"), reason="not glibc's allocator")
def test_all_threads_of_a_server_share_one_heap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MALLOC_ARENA_MAX", raising=False)

    def num_heaps(wanted: str) -> int:
        told = tmp_path / f"{wanted}.xml"
        subprocess.run([sys.executable, "-c", COUNT_HEAPS, str(told), wanted], check=True)
        return told.read_text().count("<heap nr=")

    assert num_heaps("one") == 1
    assert num_heaps("as it comes") > 1
