"""How much memory this process uses, and used at most."""

import resource
import sys
from contextlib import suppress
from pathlib import Path

import torch


def memory_bytes(device: torch.device) -> int:
    """Return the bytes in use now: of the GPU when training there, else resident in main memory."""
    if device.type == "cuda":
        return int(torch.cuda.memory_allocated(device))
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:  # not Linux: the peak is the nearest number there is
        return peak_memory_bytes(device)
    return pages * resource.getpagesize()


def peak_memory_bytes(device: torch.device) -> int:
    """Return the most bytes in use at one time since the process began."""
    if device.type == "cuda":
        return int(torch.cuda.max_memory_allocated(device))
    # ru_maxrss goes on counting through fork and exec: a worker would report at least its launcher's peak.
    with suppress(OSError, StopIteration):
        lines = Path("/proc/self/status").read_text().splitlines()
        return 1024 * int(next(line for line in lines if line.startswith("VmHWM:")).split()[1])
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
