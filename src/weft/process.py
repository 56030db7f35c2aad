"""How a process of weft takes memory, waits and computes: libraries read it when they are loaded.

`prepare` is called before torch is imported: by the `weft` command, and by the first use of `weft.train` and
the other names of the front where torch is not there yet. What the user has set stays.

Huge pages: rows are read at random, and with pages of 4 KiB much of the time goes into looking up addresses.
An epoch of SAGE on 100,000 nodes took 0.18 s instead of 0.28. A fixed threshold: glibc raises the size from
which memory is given back to the system, up to 32 MiB, as soon as such memory was freed once. After some
epochs the heap is full of holes, and a worker that needs 280 MiB held 340, without huge pages 650.

Waits: OpenMP's threads spin while they wait for the next loop, and on a machine with other work, or under a
container's quota, take the core from the thread that they wait for (`benchmarks.run waits`). Threads that
sleep lose microseconds instead.

Tiles: some virtual machines show a processor's matrix tiles (AMX) and forbid them. torch's bfloat16 products
would then end the process by SIGILL; oneDNN is told to do without.
"""

import ctypes
import os
import signal
import subprocess
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import weft
from weft.errors import InputError, WeftWarning
from weft.machine import usable_cores

FILE_NAME = "libweftcore.so"
ONEDNN = "ONEDNN_MAX_CPU_ISA"
"""The variable that limits the instructions of torch's dense products."""
WITHOUT_TILES = "AVX512_CORE_BF16"
_M_MMAP_THRESHOLD, _M_TRIM_THRESHOLD = -3, -1  # of mallopt, in malloc.h
MAPPED = 1 << 20
"""Bytes from which a tensor has pages of its own, which the system has back when it is freed."""
_KEPT = 32 << 20
_TRIMMED = 128 << 10  # glibc's own
_CPU = Path("/proc/cpuinfo")
# More threads want to run than there are cores, whatever this process does itself.
_BUSY = 1.25
_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG of linux/prctl.h
_TRIAL = "import ctypes, sys; sys.exit(ctypes.CDLL(sys.argv[1]).weft_try_tiles())"


# Of what the user has set nothing may be changed; processes started from this one are told what weft has set.
CHOSEN = "WEFT_CHOSEN"


def prepare() -> None:
    """Have large tensors in huge pages, threads that sleep, and no instruction that is forbidden here."""
    chosen = {name: value for name, value in environment().items() if not set_by_user(name)}
    os.environ.update(chosen)
    os.environ[CHOSEN] = ",".join(f"{name}={value}" for name, value in chosen.items())
    return_freed()


def return_freed() -> None:
    """Give large tensors back to the system when they are freed; glibc would hold ever larger ones."""
    _set_malloc({_M_MMAP_THRESHOLD: MAPPED})


@contextmanager
def kept_memory() -> Iterator[None]:
    """Keep memory of up to 32 MiB that is freed for whoever asks next, instead of giving it back.

    For steps that take the same sizes again and again: most of writing a new tensor is page faults.
    """
    _set_malloc({_M_MMAP_THRESHOLD: _KEPT, _M_TRIM_THRESHOLD: 8 * _KEPT})
    try:
        yield
    finally:
        _set_malloc({_M_MMAP_THRESHOLD: MAPPED, _M_TRIM_THRESHOLD: _TRIMMED})


def _set_malloc(parameters: Mapping[int, int]) -> None:
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if os.name == "posix" else None
    if mallopt is not None and "MALLOC_MMAP_THRESHOLD_" not in os.environ:
        for name, value in parameters.items():
            mallopt(name, value)


def environment() -> dict[str, str]:
    """Return the variables that a process of weft should have before it loads torch."""
    chosen = {
        "THP_MEM_ALLOC_ENABLE": "1",  # torch reads it at its first allocation
        "OMP_WAIT_POLICY": "passive",
        "OMP_NUM_THREADS": str(usable_cores()),  # libgomp knows the cores it is bound to, not a quota
    }
    if not tiles_work():
        chosen[ONEDNN] = WITHOUT_TILES
    return chosen


def set_by_user(name: str) -> bool:
    """Return whether a variable of the environment is the user's word, not ours, here or in a parent."""
    chosen = os.environ.get(CHOSEN, "").split(",")
    return name in os.environ and f"{name}={os.environ[name]}" not in chosen


def adapt() -> None:
    """Do what can still be done in a program that had loaded torch before weft could `prepare`."""
    import torch

    cores = usable_cores()
    if not set_by_user("OMP_NUM_THREADS") and torch.get_num_threads() > cores:
        torch.set_num_threads(cores)
    spins = not {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT"} & os.environ.keys()
    if spins and cores > 1 and os.getloadavg()[0] > _BUSY * cores:
        warnings.warn(
            "this machine is busy, and torch's threads spin while they wait: set OMP_WAIT_POLICY=passive "
            "before Python starts, or use weft (weft.Graph) before torch is imported; training can be many "
            "times faster",
            WeftWarning,
            stacklevel=3,
        )


def check_bfloat16(where: str) -> None:
    """Refuse bfloat16 on a processor whose tiles are forbidden, where torch was not told to do without."""
    if ONEDNN not in os.environ and not tiles_work():
        raise InputError(
            f"{where}: this machine shows matrix tiles (AMX) and forbids them, which would end the process; "
            f"set {ONEDNN}={WITHOUT_TILES} before Python starts, or use weft (weft.Graph) before torch is "
            "imported"
        )


def alive(number: int) -> bool:
    """Return whether a process of this machine still runs, as far as we may know of it."""
    try:
        os.kill(number, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def end_with(parent: int, number: int = signal.SIGKILL) -> None:
    """Have Linux send this process a signal when its parent goes, or has gone; elsewhere do nothing."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_DEATH_SIGNAL, int(number))
        if os.getppid() != parent:  # it went before Linux was asked
            os.kill(os.getpid(), number)


def core_path() -> Path | None:
    """Return the path of the native core; in an editable installation it is not beside the sources."""
    return next((path for place in weft.__path__ if (path := Path(place) / FILE_NAME).is_file()), None)


@cache
def tiles_work() -> bool:
    """Return whether tiles, where the processor shows them, can be used: tried once, in a child process."""
    return not has_tiles() or try_tiles(core_path())


def has_tiles() -> bool:
    """Return whether the processor says that it has matrix tiles for bfloat16."""
    return "amx_bf16" in _flags()


def try_tiles(core: Path | None) -> bool:
    """Return whether a child process survives a product of two tiles; without the core nobody can try."""
    if core is None:
        return False
    command = [sys.executable, "-I", "-S", "-c", _TRIAL, str(core)]
    try:
        ended = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return ended.returncode == 0


def _flags() -> set[str]:
    """Return what the processor says it can do."""
    try:
        lines = _CPU.read_text().splitlines()
    except OSError:
        return set()
    return {flag for line in lines if line.startswith("flags") for flag in line.partition(":")[2].split()}
