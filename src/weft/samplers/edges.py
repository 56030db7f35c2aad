"""Batches of edges for link prediction: positive edges, their negatives, and the neighbourhood of both.

The edges that a batch is to predict must not be among those its messages flow along: they are taken out of
the blocks, with their reverse, or a model would learn to look the answer up.
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from weft.draw import Stream, fold, permutation
from weft.errors import GraphError, InputError
from weft.graph.block import Block
from weft.graph.graph import Graph
from weft.samplers.base import Batch
from weft.samplers.block import SampledBlock
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

    `edges` are places in canonical order, by default all. `hide` takes the edges of a batch, and their
    reverse, out of its neighbourhoods.
    """

    def __init__(
        self,
        sampler: NeighborSampler,
        negatives: NegativeSampler,
        edges: Any = None,
        *,
        batch_size: int = 1024,
        hide: bool = True,
        **options: Any,
    ) -> None:
        graph = sampler.graph
        if len(graph.node_types) > 1:
            raise InputError("an edge loader needs a graph of one node type")
        given = torch.arange(graph.num_edges) if edges is None else torch.as_tensor(edges).long()
        wrong = given[(given < 0) | (given >= graph.num_edges)]
        if wrong.numel():
            raise GraphError(f"edges: expected places 0 … {graph.num_edges - 1:,}, got {int(wrong[0]):,}")
        if options.get("courier") is not None:
            raise InputError("courier: batches of edges are made on the CPU and stay there; leave it out")
        super().__init__(sampler, given, batch_size=batch_size, **options)
        self.neighbours, self.negatives, self.hide = sampler, negatives, hide

    def batch(self, epoch: int, step: int) -> Any:
        """Return the batch of a step, whatever comes next."""
        edges = self.seeds_of(epoch, step)
        src = self.graph.indices[edges].long()
        dst = self.negatives.edge_dst[edges]
        negative = self.negatives.sample(edges, epoch)
        return edge_batch(self.neighbours, edges, src, dst, negative, epoch=epoch, step=step, hide=self.hide)


def edge_batch(
    sampler: NeighborSampler,
    edges: Tensor,
    src: Tensor,
    dst: Tensor,
    negative: Tensor,
    *,
    epoch: int = 0,
    step: int = 0,
    hide: bool = True,
) -> EdgeBatch:
    """Return the batch of pairs of global ids; `edges` are hidden, empty where the pairs are no edges."""
    ends = torch.cat([src, dst, negative.flatten()])
    seeds, rows = torch.unique(ends, return_inverse=True)
    nodes = sampler.sample(seeds, epoch, step)
    if hide and edges.numel():
        pairs = src * sampler.graph.num_nodes + dst
        reverse = dst * sampler.graph.num_nodes + src
        hidden = torch.unique(torch.cat([pairs, reverse]))
        nodes = _hide(nodes, hidden, sampler.graph)
    count = src.numel()
    return EdgeBatch(
        nodes, edges, rows[:count], rows[count : 2 * count], rows[2 * count :].reshape(negative.shape)
    )


def _hide(nodes: Batch, hidden: Tensor, graph: Graph) -> Batch:
    """Return the batch without the hidden pairs, in its blocks and in what `to_pyg` makes of it."""
    once, sizes = nodes._once, nodes.hop_sizes
    nodes.blocks = [without(block, hidden, graph) for block in nodes.blocks]
    if (
        sizes is not None
    ):  # the edges of a hop and of all before it are those of a block, the last one's first
        ends = [0, *(block.num_edges for block in reversed(nodes.blocks))]
        nodes.hop_sizes = sizes[0], [stop - start for start, stop in pairwise(ends)]
    if once is not None:
        nodes._once = lambda: _hide(once(), hidden, graph)
    return nodes


def without(block: Block, hidden: Tensor, graph: Graph) -> Block:
    """Return a sampled block without the edges whose (source, target) is among the hidden pairs, sorted."""
    assert isinstance(block, SampledBlock), "a neighbourhood has sampled blocks"
    pair = block.src_ids[block.indices.long()] * graph.num_nodes + block.dst_ids[block.edge_dst]
    place = torch.searchsorted(hidden, pair).clamp(max=hidden.numel() - 1)
    kept = (hidden[place] != pair).nonzero().flatten()
    if kept.numel() == block.num_edges:
        return block
    counts = torch.bincount(block.edge_dst[kept], minlength=block.num_dst)
    return SampledBlock(
        torch.cat([counts.new_zeros(1), counts.cumsum(0)]),
        block.indices[kept],
        num_src=block.num_src,
        edge_scale=None if block.edge_scale is None else block.edge_scale[kept],
        node_types=graph.node_types,
        node_offsets=graph.node_offsets,
        src_ids=block.src_ids,
        edge_ids=block.edge_ids[kept],
        edge_type=None if block.edge_type is None else block.edge_type[kept],
        num_relations=block.num_relations,
        edge_data=graph.edge_data,
        degrees=graph,
    )


def split_edges(
    graph: Graph, *, val: float = 0.05, test: float = 0.1, undirected: bool = True, seed: int = 0
) -> tuple[Graph, Tensor, Tensor]:
    """Return the graph without some edges, and those: (2, n) to choose a model by and (2, m) to test it.

    Where the graph has every edge in both directions, `undirected` takes both out and gives one of them.
    """
    if val < 0 or test < 0 or val + test >= 1:
        raise InputError(f"val and test are shares that leave some edges, got {val!r} and {test!r}")
    src, dst = graph.edge_index
    low, high = torch.minimum(src, dst), torch.maximum(src, dst)
    pair = low * graph.num_nodes + high if undirected else src * graph.num_nodes + dst
    distinct, place = torch.unique(pair, return_inverse=True)
    order = torch.from_numpy(permutation(fold(seed, Stream.SPLIT), distinct.numel()))
    first, second = round(val * distinct.numel()), round((val + test) * distinct.numel())
    taken = torch.zeros(distinct.numel(), dtype=torch.bool)
    taken[order[:second]] = True
    kept = ~taken[place]
    kinds = graph.given_edge_type()
    left = graph.with_edges(
        torch.stack([src, dst])[:, kept],
        None if kinds is None else kinds[kept],
        {name: value[kept] for name, value in graph.given_edge_data().items()},
    )
    held = [distinct[order[:first]], distinct[order[first:second]]]
    val_edges, test_edges = (torch.stack([p // graph.num_nodes, p % graph.num_nodes]) for p in held)
    return left, val_edges, test_edges
