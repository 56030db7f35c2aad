"""Batches that are subgraphs: some nodes and all edges among them, the same for every layer."""

from collections import deque
from typing import Any

import torch
from torch import Tensor

from weft.graph.degrees import entries_of_rows
from weft.graph.graph import Graph
from weft.graph.message.block import DegreeSource
from weft.kernels import gpu
from weft.samplers.base import Batch, as_seeds
from weft.samplers.core.block import SampledBlock, block_of


class Subgraph(Batch):
    """A batch whose seeds are the training nodes of a subgraph: one block, which every layer is given.

    `rows` of `model(batch.blocks, batch.x)` are the seeds', in one process the first ones; `count` has the
    seeds of all workers. `weight` [seeds] is what the loss of each counts in the step, where they differ;
    None: all alike.
    """

    weight: Tensor | None = None

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.count = self.seeds.numel()
        self.rows: slice | Tensor = slice(self.count)

    def fetch(self, *, pin: bool = False) -> "Subgraph":
        """Do now what a step would wait for; the edges by source too, which layers after the first need."""
        super().fetch(pin=pin)
        for block in self.blocks:
            gpu.look_at(block.transposed.indptr, block.num_edges)
        return self


class SubgraphBlock(SampledBlock):
    """All edges among some nodes: each stands for itself, unless `edge_scale` says more."""

    @property
    def row_scale(self) -> Tensor | None:
        """None: rows are whole, as far as the subgraph goes."""
        return None


class Rows:
    """The nodes of a graph, and which of them are trained on: what subgraphs are made of.

    `seeds` are the latter by id; None: those that the graph says.
    """

    def __init__(self, graph: Graph, seeds: Tensor | None = None) -> None:
        self.graph = graph
        self.is_seed = torch.zeros(graph.num_nodes, dtype=torch.bool)
        self.is_seed[graph.seeds() if seeds is None else as_seeds(graph, seeds)] = True
        self._tables: deque[Tensor] = deque()  # of -1, those that no thread is using

    def ordered(self, nodes: Tensor) -> tuple[Tensor, int]:
        """Return distinct nodes with those to train on first, each by id, and how many these are."""
        nodes = nodes.sort().values
        chosen = self.is_seed[nodes]
        return torch.cat([nodes[chosen], nodes[~chosen]]), int(chosen.sum())

    def edges(self, nodes: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return indptr, source rows and ids of the edges among nodes, in the order of the nodes."""
        graph = self.graph
        row = self._table()
        row[nodes] = torch.arange(len(nodes), dtype=torch.int32)
        indptr, edges = entries_of_rows(graph.indptr, nodes)
        src = row[graph.indices[edges].long()]
        row[nodes] = -1
        self._tables.append(row)
        inside = src >= 0
        before = torch.cat([indptr.new_zeros(1), inside.long().cumsum(0)])
        return before[indptr], src[inside], edges[inside]

    def _table(self) -> Tensor:
        """Return a row of each node, -1; as large as the graph, so it is used again and not made anew."""
        try:
            return self._tables.pop()
        except IndexError:
            return torch.full((self.graph.num_nodes,), -1, dtype=torch.int32)

    def batch(
        self,
        nodes: Tensor,
        num_seeds: int,
        edges: tuple[Tensor, Tensor, Tensor],
        *,
        edge_scale: Tensor | None = None,
        degrees: DegreeSource | None = None,
        enhanced: bool = False,
        **moment: Any,
    ) -> Subgraph:
        """Return the subgraph of nodes; without `degrees` they are counted in it alone."""
        graph, (indptr, indices, edge_ids) = self.graph, edges
        if edge_scale is None and graph.edge_type is not None:
            edge_scale = torch.ones(len(edge_ids))  # blocks of one relation would count by rows instead
        counts: dict[str, Any] = {"kind": SubgraphBlock, "edge_scale": edge_scale, "degrees": degrees}
        block = block_of(graph, indptr, indices, nodes=nodes, edge_ids=edge_ids, enhanced=enhanced, **counts)
        return Subgraph(graph, [block], nodes, num_seeds=num_seeds, **moment)
