"""What this machine can give: its memory and its cores, and those of the container it may be seen from."""

import math
import os
import resource
from collections.abc import Iterator
from pathlib import Path

_CONTAINER = Path("/sys/fs/cgroup")
_MEMBERSHIP = Path("/proc/self/cgroup")
# The limit and what is used, in both versions of control groups.
_MEMORY = (
    ("memory.max", "memory.current"),
    ("memory.limit_in_bytes", "memory.usage_in_bytes"),
)


def free_memory() -> int:
    """Return the bytes that this process may still take: of the machine, its container, its addresses."""
    found = [_available(Path("/proc/meminfo")), *(left_in(folder) for folder in groups("memory"))]
    found.append(free_addresses())
    limits = [value for value in found if value is not None]
    if limits:
        return max(0, min(limits))
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def free_addresses() -> int | None:
    """Return the bytes of addresses that this process may still map; None where they have no limit.

    Threads and libraries take far more addresses than memory.
    """
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if limit == resource.RLIM_INFINITY:
        return None
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
    except (OSError, ValueError):
        return limit
    return max(0, limit - pages * os.sysconf("SC_PAGE_SIZE"))


def usable_cores() -> int:
    """Return how many cores this process may use: those it is bound to, or the quota of its container."""
    bound = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quotas = [quota for folder in groups("cpu") if (quota := quota_in(folder)) is not None]
    # Half a core more is worth a thread: it runs half of the time.
    return max(1, min([bound, *(math.ceil(quota - 0.25) for quota in quotas)]))


def groups(controller: str) -> Iterator[Path]:
    """Give the folders of the control groups that may limit this process, of either version."""
    # In a container its own group is the root of what it sees, whatever path it is told.
    yield from (_CONTAINER, _CONTAINER / controller)
    try:
        lines = _MEMBERSHIP.read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, names, path = line.split(":", 2)
        if names and controller not in names.split(","):
            continue
        group = Path(path.lstrip("/"))
        for inner in (group, *group.parents):
            yield _CONTAINER / names / inner


def left_in(folder: Path) -> int | None:
    """Return the bytes that the limit of a control group leaves; None where it has none."""
    for limit, used in _MEMORY:
        try:
            return int((folder / limit).read_text()) - int((folder / used).read_text())
        except (OSError, ValueError):  # no such group, no limit ("max")
            continue
    return None


def memory_kills() -> int | None:
    """Return how many processes the kernel has killed for memory, None where it does not tell."""
    counts = [*map(kills_in, groups("memory")), _counted(Path("/proc/vmstat"), "oom_kill")]
    told = [count for count in counts if count is not None]
    return sum(told) if told else None


def kills_in(folder: Path) -> int | None:
    """Return how many processes of a control group the kernel has killed for memory; None: it is not told."""
    for name in ("memory.events", "memory.oom_control"):
        count = _counted(folder / name, "oom_kill")
        if count is not None:
            return count
    return None


def _counted(path: Path, name: str) -> int | None:
    try:
        return next(int(line.split()[1]) for line in path.read_text().splitlines() if line.split()[0] == name)
    except (OSError, ValueError, IndexError, StopIteration):
        return None


def quota_in(folder: Path) -> float | None:
    """Return the cores that the quota of a control group is worth; None where it has none."""
    try:
        quota, period = (folder / "cpu.max").read_text().split()
    except (OSError, ValueError):
        try:
            quota, period = ((folder / f"cpu.cfs_{name}_us").read_text() for name in ("quota", "period"))
        except OSError:
            return None
    try:
        cores = int(quota) / int(period)
    except (ValueError, ZeroDivisionError):  # no quota: "max"
        return None
    return cores if cores > 0 else None  # no quota: -1


def _available(path: Path) -> int | None:
    try:
        lines = dict(line.split(":", 1) for line in path.read_text().splitlines() if ":" in line)
        return int(lines["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        return None
