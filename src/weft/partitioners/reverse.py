"""The edges of a graph by source, in a file without a name: for partitioners that stream over neighbours.

Edges are dealt by ranges of sources into one file, then each range is sorted into another. Memory is that of
one range and of one number per node; the disk holds 12 bytes an edge meanwhile (twice that from 2³¹ nodes on)
and 4 afterwards, where temporary files go (`TMPDIR`). Files without a name go when the process does.
"""

import tempfile
from collections.abc import Callable
from typing import IO, Any

import numpy as np
import torch
from numpy.typing import NDArray

from weft.graph import row_ranges
from weft.graph.graph import Graph


class Reverse:
    """Destinations of the edges of each source, ascending."""

    def __init__(self, graph: Graph, watch: Callable[[float], None] = lambda _: None) -> None:
        """Sort the edges of a graph; `watch` is told which share is done."""
        degree = row_ranges.out_degrees(graph.indptr, graph.indices)
        indptr = torch.cat([degree.new_zeros(1), degree.cumsum(0)])
        self.indptr: NDArray[np.int64] = indptr.numpy()
        self.dtype: np.dtype[Any] = graph.indices.numpy().dtype
        ranges = list(row_ranges.row_ranges(indptr))
        firsts = np.array([first for first, _ in ranges])
        self._file = tempfile.TemporaryFile(prefix="weft-reverse-")  # noqa: SIM115 - read until it is closed
        with tempfile.TemporaryFile(prefix="weft-dealt-") as dealt:
            _deal(graph, dealt, firsts, self.indptr[firsts], self.dtype)
            watch(0.5)
            dealt.seek(0)
            for first, last in ranges:
                count = int(self.indptr[last] - self.indptr[first])
                pairs = np.fromfile(dealt, self.dtype, 2 * count).reshape(count, 2)
                pairs[np.argsort(pairs[:, 0], kind="stable"), 1].tofile(self._file)
                watch(0.5 + 0.5 * int(self.indptr[last]) / max(graph.num_edges, 1))
        self._file.flush()

    def between(self, begin: int, end: int) -> NDArray[Any]:
        """Return the destinations of some edges."""
        self._file.seek(begin * self.dtype.itemsize)
        return np.fromfile(self._file, self.dtype, end - begin)

    def mapped(self) -> NDArray[Any]:
        """Return the destinations of all edges, mapped."""
        if not self.indptr[-1]:
            return np.empty(0, self.dtype)
        return np.memmap(self._file, self.dtype, mode="r")

    def close(self) -> None:
        """Let the file go."""
        self._file.close()


def _deal(
    graph: Graph, file: IO[bytes], firsts: NDArray[Any], place: NDArray[np.int64], dtype: np.dtype[Any]
) -> None:
    """Write (source, destination) of every edge behind those of its range of sources that are there."""
    place = place.copy()
    for src, dst in row_ranges.some_edges(graph.indptr, graph.indices):
        pairs = np.stack([src.numpy(), dst.numpy().astype(dtype)], axis=1)
        held = np.searchsorted(firsts, pairs[:, 0], side="right") - 1
        pairs = pairs[np.argsort(held, kind="stable")]
        counts = np.bincount(held, minlength=len(firsts))
        begin = 0
        for number in np.flatnonzero(counts).tolist():
            file.seek(int(place[number]) * pairs.itemsize * 2)
            pairs[begin : begin + counts[number]].tofile(file)
            place[number] += counts[number]
            begin += counts[number]
    file.flush()
