"""METIS, through pymetis. It checks nothing and balances one weight, so we check and combine."""

from importlib import import_module
from typing import Annotated, Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from weft.config import Range
from weft.errors import MissingExtra
from weft.graph.graph import Graph
from weft.partitioners.base import Partitioner, Undirected, partitioners, undirected
from weft.partitioners.quality import count_cut, count_halo
from weft.partitioners.weights import Combined, Parts, search


@partitioners.add("metis")
class MetisPartitioner(Partitioner):
    """Few cut edges or few halo rows, by METIS; nodes, edges and training nodes balanced together."""

    def __init__(
        self,
        *,
        objective: Literal["volume", "cut"] = "volume",
        imbalance: Annotated[float, Range(above=0)] = 0.03,
        tries: Annotated[int, Range(least=1)] = 4,
        max_rise: Annotated[float, Range(least=0)] = 0.15,
        seed: int = 0,
    ) -> None:
        """`objective`: halo rows (what travels) or cut edges. `tries`, `max_rise`: the search for weights."""
        super().__init__(seed=seed)
        self.objective = objective
        self.imbalance = imbalance
        self.tries = tries
        self.max_rise = max_rise

    def assign(self, graph: Graph, num_parts: int) -> Tensor:
        """Return the part of each node; the graph is taken as undirected, without loops and duplicates."""
        metis = _pymetis()
        near = undirected(graph)
        count = count_halo if self.objective == "volume" else count_cut
        best = search(
            Combined(graph, num_parts),
            lambda weight: self._divide(metis, near, weight, num_parts),
            lambda parts: count(graph, torch.from_numpy(parts), num_parts),
            tries=self.tries,
            max_rise=self.max_rise,
            total=graph.num_nodes if self.objective == "volume" else graph.num_edges,
        )
        return torch.from_numpy(best.parts)

    def _divide(
        self, metis: Any, near: Undirected, weight: NDArray[np.int64] | None, num_parts: int
    ) -> Parts:
        options = metis.Options(seed=self.seed, ufactor=max(1, round(1000 * self.imbalance)))
        if self.objective == "volume":
            options.objtype = int(getattr(metis.ObjType.VOL, "value", metis.ObjType.VOL))
        adjacency = metis.CSRAdjacency(*near)
        # k-way even for few parts: recursive bisection, pymetis's choice up to 8, cuts more.
        _, parts = metis.part_graph(num_parts, adjacency, vweights=weight, options=options, recursive=False)
        return np.asarray(parts, dtype=np.int32)


def _pymetis() -> Any:
    try:
        return import_module("pymetis")
    except ImportError as error:
        raise MissingExtra("pymetis is not installed; install it with: pip install pymetis") from error
