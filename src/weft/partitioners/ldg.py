"""Linear deterministic greedy: parts in one stream over the nodes (Stanton and Kliot, KDD 2012), repeated.

Node v goes to the part p with the largest |neighbours of v in p| · (1 − load(p) / capacity); where no part
scores, to the least loaded one. A further pass (restreaming, Nishimura and Ugander, KDD 2013) streams again
with empty loads and the parts of the pass before. Memory is that of the neighbour lists: for graphs that
METIS has no room for.
"""

import ctypes
from typing import Annotated, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from weft.config import Range
from weft.draw import Stream, fold, permutation
from weft.graph.graph import Graph
from weft.kernels import native
from weft.partitioners.base import Partitioner, Undirected, partitioners, undirected

_P, _L, _D, _I = ctypes.c_void_p, ctypes.c_int64, ctypes.c_double, ctypes.c_int
_SIGNATURE: dict[str, list[type]] = {"weft_partition_ldg": [_P, _P, _P, _P, _L, _L, _L, _D, _I, _P]}


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
        order = np.arange(count)
        if self.order == "random":
            order = permutation(fold(self.seed, Stream.SHUFFLE), count)
        stream = _native if has_native() else reference
        return torch.from_numpy(stream(undirected(graph), weight, order, num_parts, capacity, self.passes))


def has_native() -> bool:
    """Return whether the native core is there and has this loop."""
    return hasattr(native.library(), "weft_partition_ldg")


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


def _native(
    near: Undirected,
    weight: NDArray[np.float64],
    order: NDArray[np.int64],
    num_parts: int,
    capacity: float,
    passes: int,
) -> NDArray[np.int32]:
    core = native.library()
    assert core is not None
    native.declare(_SIGNATURE)
    parts = np.full(len(weight), -1, dtype=np.int32)
    arrays = [np.ascontiguousarray(a) for a in (near.indptr, near.indices, weight, order)]
    pointers = [array.ctypes.data for array in arrays]
    sizes = len(weight), len(near.indices), num_parts
    status = core.weft_partition_ldg(*pointers, *sizes, capacity, passes, parts.ctypes.data)
    native.check(status, "ldg")
    return parts
