"""How the process takes memory for large tensors; asked for before torch is imported.

Huge pages: rows are read at random, and with pages of 4 KiB much of the time goes into looking up addresses.
An epoch of SAGE on 100,000 nodes took 0.18 s instead of 0.28. A fixed threshold: glibc raises the size from
which memory is given back to the system, up to 32 MiB, as soon as such memory was freed once. After some
epochs the heap is full of holes, and a worker that needs 280 MiB held 340, without huge pages 650.
"""

import ctypes
import os

_M_MMAP_THRESHOLD = -3  # of mallopt, in malloc.h
_LARGE = 1 << 20


def prepare() -> None:
    """Have large tensors in huge pages, and their memory given back when they are freed."""
    os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")  # torch reads it at its first allocation
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if os.name == "posix" else None
    if mallopt is not None and "MALLOC_MMAP_THRESHOLD_" not in os.environ:
        mallopt(_M_MMAP_THRESHOLD, _LARGE)
