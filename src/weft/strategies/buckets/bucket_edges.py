"""The edges of every bucket as files: written once, read bucket by bucket.

They are sorted some at a time into a file without a name, from which the runs of each bucket are read one
after the other: memory is that of a piece and of two numbers a node, however many edges there are.
"""

import hashlib
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch
from numpy.typing import NDArray

from weft.errors import FormatError
from weft.format import ArrayFile, new_directory, read_directory, seal_directory
from weft.graph.node_pairs import Pairs
from weft.strategies.buckets.chunks import BucketEdges, Candidates, End, EndPool
from weft.strategies.buckets.division import Division

Ints = NDArray[np.int64]
PIECE = 1 << 20
"""Edges that are sorted at once."""
_COLUMNS = ("src", "dst", "relation")


def write_edges(
    folder: Path, pairs: Pairs, division: Division, edge_types: Sequence[tuple[str, str, str]]
) -> None:
    """Write training pairs by bucket, unless the folder has them: rows within partitions, and relations."""
    facts = {"partitions": division.partitions, "edges": len(pairs), "mark": _mark(pairs, division)}
    if _told(folder) == facts:
        return
    folder.parent.mkdir(parents=True, exist_ok=True)
    with new_directory(folder, overwrite=True) as partial, tempfile.TemporaryFile(dir=partial) as dealt:
        sizes, degrees = _deal(pairs, division, dealt)
        files = {name: ArrayFile(partial / f"{name}.npy", np.int32, (len(pairs),)) for name in _COLUMNS}
        for run in _runs(dealt, sizes):
            for column, name in enumerate(_COLUMNS):
                files[name].append(run[:, column])
        for name, array in {**degrees, **_facts(sizes.sum(0), division, edge_types)}.items():
            files[name] = ArrayFile(partial / f"{name}.npy", array.dtype, array.shape)
            files[name].append(array)
        seal_directory(partial, facts, arrays={name: file.close() for name, file in files.items()})


def _deal(pairs: Pairs, division: Division, file: IO[bytes]) -> tuple[Ints, dict[str, NDArray[np.int32]]]:
    """Write pieces of pairs, each sorted by bucket, as rows (source, target, relation).

    Return how many each piece has of each bucket, and how often each row is an end.
    """
    count, starts = division.partitions, _starts(division)
    degrees = {f"degree_{end}": np.zeros(starts[-1], np.int32) for end in ("src", "dst")}
    sizes = []
    for src, dst, relation in _pieces(pairs):
        (of_src, row_src), (of_dst, row_dst) = division.places(src), division.places(dst)
        for name, places in (
            ("degree_src", starts[of_src] + row_src),
            ("degree_dst", starts[of_dst] + row_dst),
        ):
            rows, times = np.unique(places, return_counts=True)
            degrees[name][rows] += times.astype(np.int32)
        bucket = of_src * count + of_dst
        order = np.argsort(bucket, kind="stable")
        np.stack([row_src, row_dst, relation], 1).astype(np.int32)[order].tofile(file)
        sizes.append(np.bincount(bucket, minlength=count * count))
    file.flush()
    return np.array(sizes, np.int64).reshape(-1, count * count), degrees


def _runs(file: IO[bytes], sizes: Ints) -> Iterator[NDArray[np.int32]]:
    """Give the rows of each bucket in turn, those of a piece after those of the one before."""
    ends = sizes.cumsum().reshape(sizes.shape)
    for bucket in range(sizes.shape[1]):
        for piece in np.flatnonzero(sizes[:, bucket]).tolist():
            size = int(sizes[piece, bucket])
            file.seek((int(ends[piece, bucket]) - size) * len(_COLUMNS) * 4)
            yield np.fromfile(file, np.int32, size * len(_COLUMNS)).reshape(size, len(_COLUMNS))


def _facts(
    sizes: Ints, division: Division, edge_types: Sequence[tuple[str, str, str]]
) -> dict[str, NDArray[Any]]:
    """Return where buckets and partitions begin, and between which types each relation is."""
    number = {name: index for index, name in enumerate(division.names)}
    kinds = np.array([[number[kind[0]], number[kind[2]]] for kind in edge_types], np.int64)
    groups, group = np.unique(kinds, axis=0, return_inverse=True)
    return {
        "offsets": np.concatenate([[0], sizes.cumsum()]).astype(np.int64),
        "starts": _starts(division),
        "groups": groups.reshape(-1, 2),
        "group": group.reshape(-1),
    }


def _starts(division: Division) -> Ints:
    return np.concatenate([[0], division.type_starts[:, -1].cumsum()]).astype(np.int64)


def _pieces(pairs: Pairs) -> Iterator[tuple[Ints, Ints, Ints]]:
    """Give sources, targets and relations, some pairs after the other."""
    for first in range(0, len(pairs), PIECE):
        here = slice(first, first + PIECE)
        src, dst = pairs.src[here].numpy(), pairs.dst[here].numpy()
        yield src, dst, np.zeros_like(src) if pairs.relation is None else pairs.relation[here].numpy()


class EdgeFiles:
    """The buckets that `write_edges` wrote; edges of one are read when it is asked for."""

    def __init__(self, folder: Path, division: Division) -> None:
        arrays, self.told = read_directory(folder, verify=False)
        self.division, self._arrays = division, arrays
        self._kinds = [(int(a), int(b)) for a, b in arrays["groups"]]
        self.bytes_read = 0

    def count(self, bucket: tuple[int, int]) -> int:
        """Return how many edges a bucket has."""
        first, last = self._range(bucket)
        return last - first

    def read(self, bucket: tuple[int, int]) -> BucketEdges:
        """Return the edges of a bucket."""
        first, last = self._range(bucket)
        src, dst, relation = (
            torch.from_numpy(np.array(self._arrays[name][first:last])) for name in ("src", "dst", "relation")
        )
        self.bytes_read += src.nbytes + dst.nbytes + relation.nbytes
        group = torch.from_numpy(np.asarray(self._arrays["group"])[relation.numpy()])
        return BucketEdges(src, dst, relation, group, self._kinds)

    def ends(self, bucket: tuple[int, int], candidates: Candidates) -> dict[End, EndPool]:
        """Return what candidates of both sides are drawn from."""
        sides: dict[End, int] = {"src": bucket[0], "dst": bucket[1]}
        return {end: self._ends(end, partition, candidates.alpha) for end, partition in sides.items()}

    def _ends(self, end: End, partition: int, alpha: float) -> EndPool:
        starts = self.division.type_starts[partition]
        if alpha == 0.0:
            return EndPool(starts)
        first, last = self._arrays["starts"][partition : partition + 2]
        degree = np.asarray(self._arrays[f"degree_{end}"][first:last], np.float64)
        return EndPool(starts, (degree**alpha).cumsum())

    def _range(self, bucket: tuple[int, int]) -> tuple[int, int]:
        number = bucket[0] * self.division.partitions + bucket[1]
        first, last = self._arrays["offsets"][number : number + 2]
        return int(first), int(last)


def _mark(pairs: Pairs, division: Division) -> str:
    """Return what tells these edges in these partitions from others."""
    columns = [hashlib.sha256() for _ in _COLUMNS]
    for piece in _pieces(pairs):
        for held, array in zip(columns, piece):
            held.update(np.ascontiguousarray(array).data)
    told = [division.mark, *(held.hexdigest() for held in columns)]
    return hashlib.sha256("\n".join(told).encode()).hexdigest()


def _told(folder: Path) -> dict[str, object] | None:
    """Return what the edges in a folder are; None where it holds none, or damaged ones."""
    try:
        return read_directory(folder)[1]
    except FormatError:
        return None
