"""A graph in chunks: a run of destinations, their edges, and the rows that these read.

What a layer does to a destination depends on the rows of its sources alone, so a layer can be run chunk by
chunk. Chunks are cut by what they take on the device: rows that are read, rows that are made, edges.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from weft.errors import RecipeError
from weft.graph.graph import Graph
from weft.graph.message.block import Block, DegreeSource
from weft.samplers.core.block import SampledBlock
from weft.sizes import shown


@dataclass(frozen=True)
class Cost:
    """The bytes that a layer takes on the device, at most: of a row it reads, a row it makes, an edge."""

    source: int
    row: int
    edge: int

    @property
    def without_sources(self) -> "Cost":
        """That of chunks which read from rows that are on the device in any case."""
        return Cost(0, self.row, self.edge)

    def __call__(self, sources: int, rows: int, edges: int) -> int:
        return sources * self.source + rows * self.row + edges * self.edge


@dataclass(frozen=True, eq=False)
class GraphChunk:
    """The edges into some destinations; `sources` begin with these."""

    rows: slice
    """The destinations, nodes of the graph."""
    edges: slice
    """The edges, in the canonical order of the graph."""
    sources: Tensor | None
    """[s] int64 nodes that are read: the destinations, then the others ascending; None: any node is."""
    indptr: Tensor
    """[rows + 1] int64."""
    indices: Tensor
    """[e] places among the sources."""

    def block(
        self,
        graph: Graph,
        device: torch.device,
        degrees: DegreeSource,
        clock: Tensor | None,
        kind: "type[ChunkBlock] | None" = None,
    ) -> Block:
        """Return the block on a device; its tensors are copied there."""
        kinds, sources = graph.edge_type, self.sources
        rows = None if sources is not None else torch.arange(self.rows.start, self.rows.stop, device=device)
        return (kind or ChunkBlock)(
            self.indptr.to(device, non_blocking=True),
            self.indices.to(device, non_blocking=True),
            num_src=graph.num_nodes if sources is None else len(sources),
            node_types=graph.node_types,
            node_offsets=graph.node_offsets,
            src_ids=None if sources is None else sources.to(device, non_blocking=True),
            dst_ids=rows,
            edge_ids=torch.arange(self.edges.start, self.edges.stop, device=device),
            edge_type=None if kinds is None else kinds[self.edges].to(device),
            num_relations=graph.num_relations,
            edge_data={name: value[self.edges].to(device) for name, value in graph.edge_data.items()},
            degrees=degrees,
            clock=clock,
        )

    def pinned(self) -> "GraphChunk":
        """Return the chunk in pinned memory, from where a GPU copies it beside other work."""
        sources = None if self.sources is None else self.sources.pin_memory()
        return GraphChunk(self.rows, self.edges, sources, self.indptr.pin_memory(), self.indices.pin_memory())

    def nbytes(self, graph: Graph) -> int:
        """Return the bytes that go to the device, beside rows."""
        sources = 0 if self.sources is None else self.sources.nbytes
        data = len(self.indices) * edge_bytes(graph)
        return sources + self.indptr.nbytes + self.indices.nbytes + data


def edge_bytes(graph: Graph) -> int:
    """Return the bytes of an edge's data and type."""
    data = sum(value[:1].nbytes for value in graph.edge_data.values())
    return data + (0 if graph.edge_type is None else graph.edge_type.element_size())


class ChunkBlock(SampledBlock):
    """All edges into the rows of a chunk: each stands for itself. Edge data are the chunk's own."""

    @property
    def row_scale(self) -> None:
        """Nothing: no edge was left out."""
        return None

    def edge(self, name: str) -> Tensor:
        """Return the edge data of the chunk."""
        return self.edge_data[name] if name in self.edge_data else super().edge(name)

    def only_relation(self, relation: int) -> Block:
        return Block.only_relation(self, relation)


def cut_rows(graph: Graph, cost: Cost, budget: int) -> Iterator[GraphChunk]:
    """Give the chunks of a graph, in order, each of at most `budget` bytes; edges read from all nodes."""
    taken = torch.arange(graph.num_nodes + 1) * cost.row + graph.indptr.cpu() * cost.edge
    start = 0
    while start < graph.num_nodes:
        stop = int(torch.searchsorted(taken, taken[start] + budget, right=True)) - 1
        if stop <= start:
            raise _too_little(start, int(taken[start + 1] - taken[start]), budget, graph)
        edges = slice(int(graph.indptr[start]), int(graph.indptr[stop]))
        indptr = graph.indptr[start : stop + 1] - edges.start
        yield GraphChunk(slice(start, stop), edges, None, indptr, graph.indices[edges])
        start = stop


def cut_plain(graph: Graph, length: int) -> Iterator[GraphChunk]:
    """Give runs of nodes without their edges, in order."""
    empty = graph.indptr.new_zeros(0)
    for start in range(0, graph.num_nodes, length):
        yield GraphChunk(slice(start, min(start + length, graph.num_nodes)), slice(0, 0), None, empty, empty)


def _too_little(node: int, taken: int, budget: int, graph: Graph) -> RecipeError:
    edges = int(graph.indptr[node + 1] - graph.indptr[node])
    return RecipeError(
        f"strategy.memory: node {node} with its {edges:,} edges takes {shown(taken)} on the device, "
        f"a chunk may take {shown(budget)}; give more"
    )


def cut(graph: Graph, cost: Cost, budget: int) -> Iterator[GraphChunk]:
    """Give the chunks of a graph, in order, each of at most `budget` bytes."""
    marks, start, length = _Marks(graph), 0, graph.num_nodes
    while start < graph.num_nodes:
        stop = min(start + length + length // 4, graph.num_nodes)  # about as long as the one before
        while (taken := marks.cost(cost, start, stop)) > budget and stop - start > 1:
            stop = start + max(1, (stop - start) * 3 // 4)
        if taken > budget:
            raise _too_little(start, taken, budget, graph)
        yield marks.chunk()
        start, length = stop, stop - start


class _Marks:
    """Which nodes a run of destinations reads: marked, not sorted, since graphs are large."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.read = torch.zeros(graph.num_nodes, dtype=torch.bool)
        self.place = torch.zeros(graph.num_nodes, dtype=torch.int32)
        self.rows, self.edges = slice(0, 0), slice(0, 0)

    def cost(self, cost: Cost, start: int, stop: int) -> int:
        """Mark what these destinations read, and return what their chunk takes."""
        indptr = self.graph.indptr
        self.rows, self.edges = slice(start, stop), slice(int(indptr[start]), int(indptr[stop]))
        self.read.zero_()
        self.read[self.graph.indices[self.edges].long()] = True
        self.read[self.rows] = True
        return cost(int(self.read.sum()), stop - start, self.num_edges)

    @property
    def num_edges(self) -> int:
        """The edges of what is marked."""
        return int(self.edges.stop - self.edges.start)

    def chunk(self) -> GraphChunk:
        """Return the chunk of what is marked."""
        rows, edges, count = self.rows, self.edges, self.rows.stop - self.rows.start
        self.read[rows] = False
        sources = torch.cat([torch.arange(rows.start, rows.stop), self.read.nonzero().flatten()])
        self.place[sources] = torch.arange(len(sources), dtype=torch.int32)
        indices = self.place[self.graph.indices[edges].long()]
        indptr = self.graph.indptr[rows.start : rows.start + count + 1] - edges.start
        return GraphChunk(rows, edges, sources, indptr, indices)
