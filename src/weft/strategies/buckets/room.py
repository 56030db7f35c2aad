"""What a run of buckets takes of memory and of the disk, known before anything is read or written."""

import shutil
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from weft.errors import DataNote, RecipeError
from weft.machine import free_memory
from weft.sizes import shown
from weft.strategies.buckets.bucket_edges import PIECE
from weft.strategies.buckets.chunks import Candidates
from weft.strategies.buckets.division import Division

_VERSIONS = 3
"""Of a partition that are on the disk at most: the last one, the checkpoint's and the best epoch's."""
_EDGE, _SORTED, FILED = 100, 160, 12
"""Bytes an edge of a bucket takes that is trained, one of a piece that is sorted, and one in files."""
_DEGREES = 8
"""Bytes a node takes while edges are sorted: how often it is an end, each side."""
_STEP = 16
"""Rows of ends, queries, keys and gradients that a step holds for each of its edges."""


@dataclass(frozen=True)
class Room:
    """Bytes by what takes them."""

    memory: Mapping[str, int]
    disk: Mapping[str, int]
    passes: int
    """Bytes of partitions that an epoch reads, and writes, where each is met with each."""

    def told(self) -> str:
        """Return them in words."""
        memory, disk = summed(self.memory), summed(self.disk)
        return f"memory {memory}; disk {disk}; an epoch reads and writes {shown(self.passes)} at most"


def summed(sizes: Mapping[str, int]) -> str:
    """Return bytes together, and by what takes them, in words."""
    return f"{shown(sum(sizes.values()))} ({', '.join(f'{name} {shown(sizes[name])}' for name in sizes)})"


def room_with(
    division: Division,
    width: int,
    edges: int,
    how: Candidates,
    *,
    order: str,
    buffer: int,
    batch: int,
    chunk: int,
) -> Room:
    """Return what training takes by the options of the strategy."""
    drawn = how.count if isinstance(how.count, int) else max(map(division.size, range(division.partitions)))
    arriving, columns = 2 if order in ("random", "rounds") else 1, drawn + (chunk if how.others else 0)
    return room_of(division, width, edges, buffer=buffer, arriving=arriving, batch=batch, columns=columns)


def room_of(
    division: Division,
    width: int,
    edges: int,
    *,
    buffer: int,
    arriving: int,
    batch: int,
    columns: int,
    itemsize: int = 4,
) -> Room:
    """Return what training rows of `width` on so many edges takes, a pair compared with `columns` candidates.

    `arriving` partitions come at a time.
    """
    row, count = (width + 1) * itemsize, division.divided
    sizes = [division.size(partition) * row for partition in range(division.partitions)]
    largest = max(sizes[:count])
    in_memory = min(buffer, count) + (2 * min(arriving, count - buffer) if count > buffer else 0)
    common = sizes[-1] if division.common is not None else 0
    steps = batch * (2 * columns + _STEP * width) * itemsize
    # Edges are sorted before partitions are read; in a bucket there are about as many as in any other.
    sorting = min(edges, PIECE) * _SORTED + sum(sizes) // row * _DEGREES
    trained = in_memory * largest + common + steps + 2 * edges // count**2 * _EDGE
    memory = {"partitions": in_memory * largest + common, "a step": steps}
    if sorting > trained:
        memory = {"sorting edges": sorting}
    else:
        memory["edges of a bucket"] = trained - sum(memory.values())
    rows = sum(sizes) // row * width * itemsize
    files = {"versions of rows": _VERSIONS * sum(sizes), "rows in the end": rows}
    swaps = count * (count - 1) // 2 if count > buffer else 0
    # Sorted pieces of edges are there beside the sorted edges, when no rows are.
    return Room(memory, {**files, "edges": edges * FILED}, swaps * largest)


def check_room(room: Room, folder: Path | None, *, first: bool) -> None:
    """Refuse what cannot fit, and tell a run of large tables what it takes; `first`: nothing is there yet."""
    needed, free = sum(room.memory.values()), free_memory()
    if needed > free:
        raise RecipeError(
            f"strategy: training takes {room.told()}, and {shown(free)} of memory are free; use more "
            "partitions, a smaller buffer or batch, or a narrower task.width"
        )
    if folder is not None and first:
        place = next(each for each in (folder, *folder.absolute().parents) if each.exists())
        needed, free = sum(room.disk.values()), shutil.disk_usage(place).free
        if needed > free:
            raise RecipeError(
                f"strategy: training takes {room.told()}, and {shown(free)} of the disk are free at {place}; "
                "free some, give another --out (in Python: out=), or a narrower task.width"
            )
    if room.passes:
        warnings.warn(f"buckets: {room.told()}", DataNote, stacklevel=3)
