"""The edges of every bucket as files: written once, read bucket by bucket."""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from weft.errors import FormatError
from weft.format import read_directory, write_directory
from weft.graph.node_pairs import Pairs
from weft.strategies.buckets.chunks import BucketEdges, Candidates, End, EndPool
from weft.strategies.buckets.division import Division

Ints = NDArray[np.int64]


def write_edges(
    folder: Path, pairs: Pairs, division: Division, edge_types: Sequence[tuple[str, str, str]]
) -> None:
    """Write training pairs by bucket, unless the folder has them: rows within partitions, and relations."""
    relation = torch.zeros_like(pairs.src) if pairs.relation is None else pairs.relation
    arrays = [np.ascontiguousarray(each.numpy()) for each in (pairs.src, pairs.dst, relation)]
    told = {"partitions": division.partitions, "edges": len(pairs), "mark": _mark(arrays, division)}
    if _told(folder) == told:
        return
    count = division.partitions
    (of_src, src), (of_dst, dst) = division.places(arrays[0]), division.places(arrays[1])
    bucket = of_src * count + of_dst
    order = np.argsort(bucket, kind="stable")
    sizes = np.bincount(bucket, minlength=count * count)
    held = {"src": src[order], "dst": dst[order], "relation": arrays[2][order]}
    columns: dict[str, NDArray[Any]] = {name: value.astype(np.int32) for name, value in held.items()}
    columns["offsets"] = np.concatenate([[0], sizes.cumsum()]).astype(np.int64)
    starts = np.concatenate([[0], division.type_starts[:, -1].cumsum()])
    columns["degree_src"] = np.bincount(starts[of_src] + src, minlength=starts[-1]).astype(np.int32)
    columns["degree_dst"] = np.bincount(starts[of_dst] + dst, minlength=starts[-1]).astype(np.int32)
    columns["starts"] = starts.astype(np.int64)
    number = {name: place for place, name in enumerate(division.names)}
    kinds = np.array([[number[kind[0]], number[kind[2]]] for kind in edge_types], np.int64)
    columns["groups"], columns["group"] = (
        each.reshape(-1, *tail)
        for each, tail in zip(np.unique(kinds, axis=0, return_inverse=True), ((2,), ()))
    )
    folder.parent.mkdir(parents=True, exist_ok=True)
    write_directory(folder, columns, told, overwrite=True)


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


def _mark(arrays: Sequence[NDArray[np.int64]], division: Division) -> str:
    """Return what tells these edges in these partitions from others."""
    held = hashlib.sha256(f"{division.mark}\n".encode())
    for array in arrays:
        held.update(array.data)
    return held.hexdigest()


def _told(folder: Path) -> dict[str, object] | None:
    """Return what the edges in a folder are; None where it holds none, or damaged ones."""
    try:
        return read_directory(folder)[1]
    except FormatError:
        return None
