"""What this machine can still give: its memory, and that of the container it may be seen from."""

import os
from pathlib import Path

_CONTAINER = Path("/sys/fs/cgroup")
# The limit and what is used, in both versions of control groups.
_LIMITS = (
    ("memory.max", "memory.current"),
    ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"),
)


def free_memory() -> int:
    """Return the bytes that this process may still take: of the machine, or of its container."""
    found = [_available(Path("/proc/meminfo")), *left_in(_CONTAINER)]
    limits = [value for value in found if value is not None]
    if limits:
        return max(0, min(limits))
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def left_in(folder: Path) -> list[int | None]:
    """Return what the limits of a container leave; None where there is none of a kind."""
    found: list[int | None] = []
    for limit, used in _LIMITS:
        try:
            found.append(int((folder / limit).read_text()) - int((folder / used).read_text()))
        except (OSError, ValueError):  # no container, no limit ("max")
            found.append(None)
    return found


def _available(path: Path) -> int | None:
    try:
        lines = dict(line.split(":", 1) for line in path.read_text().splitlines() if ":" in line)
        return int(lines["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        return None
