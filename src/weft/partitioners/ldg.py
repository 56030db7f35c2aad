"""Linear deterministic greedy: parts in one stream over the nodes (Stanton and Kliot, KDD 2012), repeated.

Node v goes to the part p with the largest |neighbours of v in p| · (1 − load(p) / capacity); where no part
scores, to the least loaded one. A further pass (restreaming, Nishimura and Ugander, KDD 2013) streams again
with empty loads and the parts of the pass before.

Neighbours are those of both directions, once each, without the node itself. They are read as they are needed,
in pieces: edges by destination from the graph's own file, those by source from a temporary one that is
sorted first (`reverse.py`). Memory is a few numbers a node and one piece: for graphs that METIS has no room
for. With `order = "random"` what the stream asks for lies anywhere, so both files are mapped: their pages
may go when others need the memory.
"""

import ctypes
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from weft.config import Range
from weft.draw import Stream, fold, permutation
from weft.graph.graph import Graph
from weft.graph.row_ranges import row_ranges, sources
from weft.kernels import native
from weft.partitioners.base import Partitioner, Undirected, partitioners, undirected
from weft.partitioners.reverse import Reverse

_P, _L, _D, _I = ctypes.c_void_p, ctypes.c_int64, ctypes.c_double, ctypes.c_int
_ENDS = [_P, _P, _L, _L]
_SIGNATURE: dict[str, list[type]] = {"weft_stream_ldg": [*_ENDS, *_ENDS, _I, _P, _P, _L, _L, _L, _D, _P, _P]}


@partitioners.add("ldg")
class LdgPartitioner(Partitioner):
    """Stream the nodes, each to the part with most of its neighbours and room. Fast, little memory."""

    def __init__(
        self,
        *,
        passes: Annotated[int, Range(least=1)] = 3,
        slack: Annotated[float, Range(least=0)] = 0.05,
        order: Literal["id", "random"] = "id",
        seed: int = 0,
    ) -> None:
        """`slack` is the room of a part above its even share; `order` that of the stream."""
        super().__init__(seed=seed)
        self.passes = passes
        self.slack = slack
        self.order = order

    def assign(self, graph: Graph, num_parts: int) -> Tensor:
        """Return the part of each node. A node weighs its edges and a mean degree: both are balanced."""
        count = graph.num_nodes
        weight = (graph.indptr.diff().double() + max(graph.num_edges / count, 1.0)).numpy()
        capacity = float(weight.sum()) * (1.0 + self.slack) / num_parts
        order = permutation(fold(self.seed, Stream.SHUFFLE), count) if self.order == "random" else None
        if has_native():
            return torch.from_numpy(
                _native(graph, weight, order, num_parts, capacity, self.passes, self.told)
            )
        stream = np.arange(count) if order is None else order
        return torch.from_numpy(
            reference(undirected(graph), weight, stream, num_parts, capacity, self.passes)
        )


def has_native() -> bool:
    """Return whether the native core is there and has this loop."""
    return hasattr(native.library(), "weft_stream_ldg")


def reference(
    near: Undirected,
    weight: NDArray[np.float64],
    order: NDArray[np.int64],
    num_parts: int,
    capacity: float,
    passes: int,
) -> NDArray[np.int32]:
    """Return the part of each node: the definition, which csrc/partition.cpp is held to."""
    parts = np.full(len(weight), -1, dtype=np.int32)
    for _ in range(passes):
        load = np.zeros(num_parts)
        for node in order:
            held = parts[near.indices[near.indptr[node] : near.indptr[node + 1]]]
            score = np.bincount(held[held >= 0], minlength=num_parts) * (1.0 - load / capacity)
            best = score == score.max() if score.max() > 0 else np.ones(num_parts, dtype=bool)
            part = int(np.flatnonzero(best)[np.argmin(load[best])])  # the least loaded, then the first
            parts[node] = part
            load[part] += weight[node]
    return parts


class _Piece(NamedTuple):
    """Some nodes, and the edges into and out of them: ids of the other ends, the first of which is number
    `first_in`, `first_out`."""

    order: NDArray[np.int64]
    into: NDArray[Any]
    first_in: int
    out_of: NDArray[Any]
    first_out: int


def _native(
    graph: Graph,
    weight: NDArray[np.float64],
    order: NDArray[np.int64] | None,
    num_parts: int,
    capacity: float,
    passes: int,
    told: Callable[[float, float], None],
) -> NDArray[np.int32]:
    core = native.library()
    assert core is not None
    native.declare(_SIGNATURE)
    parts = np.full(len(weight), -1, dtype=np.int32)
    in_indptr, index = graph.indptr.contiguous().numpy(), native.INDEX_CODES[graph.indices.dtype]
    work, done = (passes + 1) * len(weight), len(weight)
    with closing(Reverse(graph, lambda share: told(share * len(weight), work))) as reverse:
        for _ in range(passes):
            load = np.zeros(num_parts)
            for piece in _pieces(graph, reverse, order):
                ends = []
                for indptr, ids, first in (
                    (in_indptr, piece.into, piece.first_in),
                    (reverse.indptr, piece.out_of, piece.first_out),
                ):
                    ends += [indptr.ctypes.data, ids.ctypes.data, first, len(ids)]
                stream = [weight.ctypes.data, piece.order.ctypes.data, len(piece.order)]
                sizes = len(weight), num_parts, capacity
                status = core.weft_stream_ldg(
                    *ends, index, *stream, *sizes, load.ctypes.data, parts.ctypes.data
                )
                native.check(status, "ldg")
                done += len(piece.order)
                told(done, work)
    return parts


def _pieces(graph: Graph, reverse: Reverse, order: NDArray[np.int64] | None) -> Iterator[_Piece]:
    """Give the nodes in the order of the stream with their edges: by id some at a time, else all at once."""
    if order is not None:
        yield _Piece(order, graph.indices.contiguous().numpy(), 0, reverse.mapped(), 0)
        return
    both = graph.indptr + torch.from_numpy(reverse.indptr)
    for first, last in row_ranges(both):
        begin, end = int(graph.indptr[first]), int(graph.indptr[last])
        first_out, end_out = int(reverse.indptr[first]), int(reverse.indptr[last])
        into = sources(graph.indices, begin, end).contiguous().numpy()
        yield _Piece(np.arange(first, last), into, begin, reverse.between(first_out, end_out), first_out)
