"""Libra: parts of edges, so that a node may be split over several (Xie et al., 2014; as DistGNN uses it).

Edges (u, v) are streamed. P(x) are the parts that hold x already, a load is a number of edges:

    P(u) and P(v) empty      the least loaded of all parts
    one of them empty        the least loaded of the other
    with common parts        the least loaded of those
    without                  the least loaded of P(end with the smaller degree): the larger one is split

Among equals a draw decides. Loads are 64-bit. A part that is full (`slack`) is passed over: the rules alone
put a path, streamed from its end, into one part.
"""

import ctypes
from typing import Annotated, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from weft.config import Range
from weft.draw import Stream, draw, fold, permutation
from weft.graph.degrees import edge_destinations
from weft.graph.graph import Graph
from weft.graph.parts.assignment import Cuts
from weft.kernels import native
from weft.partitioners.base import Partitioner, partitioners

_P, _L, _U = ctypes.c_void_p, ctypes.c_int64, ctypes.c_uint64
_SIGNATURE: dict[str, list[type]] = {"weft_partition_libra": [_P, _P, _P, _P, _L, _L, _L, _L, _U, _P]}


@partitioners.add("libra")
class LibraPartitioner(Partitioner):
    """Assign edges, greedily, to parts that hold their ends; nodes of high degree are split."""

    cuts: Cuts = "edges"  # type: ignore[misc]

    def __init__(
        self,
        *,
        slack: Annotated[float, Range(least=0)] | None = 0.05,
        order: Literal["canonical", "random"] = "canonical",
        seed: int = 0,
    ) -> None:
        """`slack` is the room of a part above its even share (None: no bound, the rules alone)."""
        super().__init__(seed=seed)
        self.slack = slack
        self.order = order

    def assign(self, graph: Graph, num_parts: int) -> Tensor:
        """Return the part of each edge in canonical order."""
        count = graph.num_edges
        src, dst = graph.indices.long(), edge_destinations(graph.indptr)
        degree = graph.indptr.diff() + torch.bincount(src, minlength=graph.num_nodes)
        order = np.arange(count)
        if self.order == "random":
            order = permutation(fold(self.seed, Stream.SHUFFLE), count)
        limit = max(count, 1)
        if self.slack is not None:
            limit = max(-(-count // num_parts), int(count / num_parts * (1 + self.slack)), 1)
        stream = _native if has_native() else reference
        ends = src.numpy(), dst.numpy(), degree.numpy()
        return torch.from_numpy(stream(*ends, order, num_parts, limit, fold(self.seed, Stream.SHUFFLE)))


def has_native() -> bool:
    """Return whether the native core is there and has this loop."""
    return hasattr(native.library(), "weft_partition_libra")


def reference(
    src: NDArray[np.int64],
    dst: NDArray[np.int64],
    degree: NDArray[np.int64],
    order: NDArray[np.int64],
    num_parts: int,
    limit: int,
    key: int,
) -> NDArray[np.int32]:
    """Return the part of each edge: the definition, which csrc/partition.cpp is held to."""
    holders: list[set[int]] = [set() for _ in degree]
    load = [0] * num_parts
    parts = np.zeros(len(src), dtype=np.int32)
    for edge in order:
        u, v = int(src[edge]), int(dst[edge])
        full = {part for part in range(num_parts) if load[part] >= limit}
        of_u, of_v = holders[u] - full, holders[v] - full
        if of_u and of_v:
            chosen = of_u & of_v or (of_u if degree[u] <= degree[v] else of_v)
        else:
            chosen = of_u | of_v or set(range(num_parts)) - full
        drawn = draw(key, np.full(num_parts, edge), np.arange(num_parts))
        part = min(chosen, key=lambda held: (load[held], drawn[held]))
        holders[u].add(part)
        holders[v].add(part)
        load[part] += 1
        parts[edge] = part
    return parts


def _native(
    src: NDArray[np.int64],
    dst: NDArray[np.int64],
    degree: NDArray[np.int64],
    order: NDArray[np.int64],
    num_parts: int,
    limit: int,
    key: int,
) -> NDArray[np.int32]:
    core = native.library()
    assert core is not None
    native.declare(_SIGNATURE)
    parts = np.zeros(len(src), dtype=np.int32)
    arrays = [np.ascontiguousarray(array) for array in (src, dst, degree, order)]
    pointers = [array.ctypes.data for array in arrays]
    sizes = len(degree), len(src), num_parts
    status = core.weft_partition_libra(*pointers, *sizes, limit, key, parts.ctypes.data)
    native.check(status, "libra")
    return parts
