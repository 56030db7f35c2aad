"""METIS with everything to be balanced as a constraint of its own, and moves for what it leaves over."""

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from weft.config import Range
from weft.graph.graph import Graph
from weft.partitioners import libmetis
from weft.partitioners.base import Partitioner, Undirected, partitioners, undirected
from weft.partitioners.constraints import Balance, Constraints, Parts, constraints
from weft.partitioners.quality import count_cut, count_halo
from weft.partitioners.weights import best, searched


@partitioners.add("metis")
class MetisPartitioner(Partitioner):
    """Few cut edges or few halo rows, by METIS; nodes, edges, sets and node types balanced together."""

    for_clusters: ClassVar[Mapping[str, Any]] = {"objective": "cut", "balance": "nodes", "tries": 1}

    def __init__(
        self,
        *,
        objective: Literal["volume", "cut"] = "volume",
        balance: Balance = "all",
        imbalance: Annotated[float, Range(above=0)] = 0.03,
        tries: Annotated[int, Range(least=1)] = 3,
        seed: int = 0,
    ) -> None:
        """`objective`: halo rows (what travels) or cut edges. `balance`: nodes, edges, training, validation
        and test nodes and node types, each at most 1 + `imbalance` times its mean; or nodes alone. The best
        of `tries`: k-way for the objective, k-way for the cut, recursive bisection, then by other seeds."""
        super().__init__(seed=seed)
        self.objective = objective
        self.balance: Balance = balance
        self.imbalance = imbalance
        self.tries = tries

    def assign(self, graph: Graph, num_parts: int) -> Tensor:
        """Return the part of each node; the graph is taken as undirected, without loops and duplicates."""
        near = undirected(graph)
        limits = constraints(graph, num_parts, self.imbalance, self.balance)
        count = count_halo if self.objective == "volume" else count_cut
        made = self._divided(near, limits)
        found = best(near, limits, made, lambda parts: count(graph, torch.from_numpy(parts), num_parts))
        return torch.from_numpy(found)

    def _divided(self, near: Undirected, limits: Constraints) -> Iterator[Parts]:
        metis = libmetis.library()
        if metis is None:
            yield from searched(limits, lambda weight: self._by_one(near, weight, limits), tries=self.tries)
            return
        ways = [(self.objective == "volume", False), (False, False), (False, True)]
        distinct = list(dict.fromkeys(ways))
        for step in range(self.tries):
            volume, recursive = distinct[step % len(distinct)]
            # C's generator takes seeds 0 and 1 for the same one.
            seed = 1 + self.seed * self.tries + step // len(distinct)
            yield libmetis.divide(metis, near, limits, volume=volume, recursive=recursive, seed=seed)

    def _by_one(self, near: Undirected, weight: NDArray[np.int64] | None, limits: Constraints) -> Parts:
        """Return parts by pymetis's own call, which takes one weight per node."""
        metis = import_module("pymetis")
        options = metis.Options(seed=self.seed + 1, ufactor=max(1, round(1000 * self.imbalance)))
        if self.objective == "volume":
            options.objtype = int(getattr(metis.ObjType.VOL, "value", metis.ObjType.VOL))
        adjacency = metis.CSRAdjacency(*near)
        # k-way even for few parts: recursive bisection, pymetis's choice up to 8, cuts more.
        _, parts = metis.part_graph(
            limits.num_parts, adjacency, vweights=weight, options=options, recursive=False
        )
        return np.asarray(parts, dtype=np.int32)
