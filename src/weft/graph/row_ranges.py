"""Walking over all edges, the rows of some at a time, so that memory is that of a range of rows."""

from collections.abc import Iterator

import torch
from torch import Tensor

from weft.reading.mapped import read_between

EDGES_AT_ONCE = 1 << 20
"""Edges that are in memory at one time, unless one row has more."""


def row_ranges(indptr: Tensor, edges: int | None = None) -> Iterator[tuple[int, int]]:
    """Give (first, last + 1) of consecutive rows with at most so many edges, or of one row with more.

    >>> list(row_ranges(torch.tensor([0, 2, 4, 9, 10]), edges=4))
    [(0, 2), (2, 3), (3, 4)]
    """
    first, rows = 0, len(indptr) - 1
    while first < rows:
        most = int(indptr[first]) + (edges or EDGES_AT_ONCE)
        last = int(torch.searchsorted(indptr, most, right=True)) - 1
        last = min(rows, max(first + 1, last))
        yield first, last
        first = last


def some_edges(indptr: Tensor, indices: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Give the sources and the destinations (int64) of some edges after the other, in canonical order."""
    for first, last in row_ranges(indptr):
        ends = indptr[first : last + 1]
        begin, end = int(ends[0]), int(ends[-1])
        rows = torch.arange(first, last, device=indptr.device)
        yield (
            sources(indices, begin, end),
            torch.repeat_interleave(rows, ends.diff(), output_size=end - begin),
        )


def out_degrees(indptr: Tensor, indices: Tensor) -> Tensor:
    """Return the number of edges out of each node, [N] int64."""
    degree = torch.zeros(len(indptr) - 1, dtype=torch.int64, device=indptr.device)
    for src, _ in some_edges(indptr, indices):
        degree.index_add_(0, src, degree.new_ones(1).expand(len(src)))
    return degree


def sources(indices: Tensor, begin: int, end: int) -> Tensor:
    """Return some of the sources of edges, read from their file where they are mapped from one."""
    if indices.device.type != "cpu":
        return indices[begin:end]
    return torch.from_numpy(read_between(indices.numpy(), begin, end))
