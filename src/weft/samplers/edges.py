"""Batches of edges for link prediction: positive edges, their negatives, and the neighbourhood of both.

The edges that a batch is to predict must not be among those its messages flow along, nor be counted by a
degree: a model would learn to look the answer up. So its neighbourhoods are those of a graph without them.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from weft.errors import GraphError, InputError
from weft.graph.ends import drawn_order, edge_ends, first_of_each, mirrored, only, pair_ids
from weft.graph.graph import Graph
from weft.graph.message.block import Block
from weft.samplers.base import Batch
from weft.samplers.core.hidden import Hidden
from weft.samplers.loader import Loader
from weft.samplers.negative import NegativeSampler
from weft.samplers.neighbor import NeighborSampler


@dataclass(eq=False)
class EdgeBatch:
    """Edges to tell from their negatives: `h = model(batch.blocks, batch.x)` has a row for each end.

    `h[batch.src]`, `h[batch.dst]` are the ends of positive edges, `h[batch.negative]` [n, count, ...] those
    that the sources are not joined to.
    """

    nodes: Batch
    """The neighbourhood of all ends."""
    edges: Tensor
    """[n] positive edges, places in canonical order."""
    src: Tensor
    """[n] rows of the seeds."""
    dst: Tensor
    """[n]"""
    negative: Tensor
    """[n, count]"""

    @property
    def blocks(self) -> list[Block]:
        """What a model takes."""
        return self.nodes.blocks

    @property
    def x(self) -> Any:
        """The features of the nodes."""
        return self.nodes.x

    def fetch(self) -> "EdgeBatch":
        """Do now what a step would wait for."""
        self.nodes.fetch()
        return self

    def set_clock(self, clock: Tensor | None) -> None:
        """Give all blocks the (seed, epoch, step) that dropout is drawn by."""
        self.nodes.set_clock(clock)


class EdgeLoader(Loader):
    """Iterate over batches of edges, prepared by threads in a fixed order, as `Loader` does over nodes.

    `edges` are places in canonical order, by default all. With `hide` a batch is that of a graph without the
    edges it is to predict: without every edge between the same ends, whatever its relation, and, with
    `reverse`, those the other way. By default reverses are hidden for edges of a relation that has each of
    its edges in both directions, there or in another relation; a directed graph keeps them. They are gone
    before neighbours are drawn, so a row draws its whole fanout from what is left.
    """

    def __init__(
        self,
        sampler: NeighborSampler,
        negatives: NegativeSampler,
        edges: Any = None,
        *,
        batch_size: int = 1024,
        hide: bool = True,
        reverse: bool | None = None,
        **options: Any,
    ) -> None:
        if options.get("courier") is not None:
            raise InputError("courier: batches of edges are made on the CPU and stay there; leave it out")
        if reverse is not None and not hide:
            raise InputError("reverse: nothing is hidden; leave it out, or hide=False")
        graph = sampler.graph
        super().__init__(
            sampler,
            torch.arange(graph.num_edges) if edges is None else edges,
            batch_size=batch_size,
            **options,
        )
        self.neighbours, self.negatives, self.hide = sampler, negatives, hide
        if hide:
            both = mirrored(graph) if reverse is None else torch.full((graph.num_relations,), reverse)
            self._both = both  # [relations] whether reverses are hidden too

    def batch(self, epoch: int, step: int) -> Any:
        """Return the batch of a step, whatever comes next."""
        edges = self.seeds_of(epoch, step)
        src = self.graph.indices[edges].long()
        dst = self.negatives.edge_dst[edges]
        negative = self.negatives.sample(edges, epoch)
        hidden = self._hidden(edges, src, dst) if self.hide else None
        return edge_batch(self.neighbours, edges, src, dst, negative, epoch=epoch, step=step, hidden=hidden)

    def _hidden(self, edges: Tensor, src: Tensor, dst: Tensor) -> Hidden:
        kinds = self.graph.edge_type
        both = self._both[torch.zeros_like(edges) if kinds is None else kinds[edges].long()]
        ends = torch.cat([src, dst[both]]), torch.cat([dst, src[both]])
        return Hidden.between(self.graph, *ends)

    def _checked(self, seeds: Any) -> Tensor:
        edges, count = torch.as_tensor(seeds).long(), self.graph.num_edges
        wrong = edges[(edges < 0) | (edges >= count)]
        if wrong.numel():
            raise GraphError(f"edges: expected places 0 … {count - 1:,}, got {int(wrong[0]):,}")
        return edges


def edge_batch(
    sampler: NeighborSampler,
    edges: Tensor,
    src: Tensor,
    dst: Tensor,
    negative: Tensor,
    *,
    epoch: int = 0,
    step: int = 0,
    hidden: Hidden | None = None,
) -> EdgeBatch:
    """Return the batch of pairs of global ids; `edges` are empty where the pairs are no edges."""
    ends = torch.cat([src, dst, negative.flatten()])
    seeds, rows = torch.unique(ends, return_inverse=True)  # sorted, and so by type
    nodes = sampler.sample(seeds, epoch, step, hidden=hidden).without_labels()
    count = src.numel()
    return EdgeBatch(
        nodes, edges, rows[:count], rows[count : 2 * count], rows[2 * count :].reshape(negative.shape)
    )


def split_edges(
    graph: Graph, *, val: float = 0.05, test: float = 0.1, undirected: bool | None = None, seed: int = 0
) -> tuple[Graph, Tensor, Tensor]:
    """Return the graph without some edges, and those: (2, n) to choose a model by and (2, m) to test it.

    With `undirected`, by default where the graph has every edge in both directions, both directions of a pair
    are taken out and one of them is given. Else edges are taken one by one, and keep their direction. All
    parallel copies of an edge are taken out with it. `weft.tasks.split_pairs` splits by time, relation and
    label too.
    """
    if val < 0 or test < 0 or val + test >= 1:
        raise InputError(f"val and test are shares that leave some edges, got {val!r} and {test!r}")
    if undirected is None:
        undirected = bool(mirrored(graph).all())
    src, dst, _ = edge_ends(graph)
    pairs = pair_ids(src, dst, graph.num_nodes, undirected=undirected)
    distinct, place = torch.unique(pairs, return_inverse=True)
    order = drawn_order(distinct, seed)
    first, second = round(val * len(distinct)), round((val + test) * len(distinct))
    taken = torch.zeros(len(distinct), dtype=torch.bool)
    taken[order[:second]] = True
    one = first_of_each(
        place, src > dst
    )  # of each pair an edge that is there, from its lower end if it can be
    val_edges, test_edges = (
        torch.stack([src[one[part]], dst[one[part]]]) for part in (order[:first], order[first:second])
    )
    return only(graph, ~taken[place]), val_edges, test_edges
