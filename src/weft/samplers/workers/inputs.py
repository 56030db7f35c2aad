"""Batches of models whose first layer sums inputs that training does not change: the sums are known.

The last hop is then not drawn, and none of its rows is read (VR-GCN's and PaGraph's preprocessing, A X).
Beside the drawn edges a batch has `every`: all edges into the rows that something is drawn for, whose sources
are remembered and not computed.
"""

from collections.abc import Sequence
from typing import Any, NoReturn

import torch
from torch import Tensor

from weft import kernels
from weft.errors import InputError
from weft.graph.degrees import entries_of_rows
from weft.graph.graph import Graph
from weft.graph.message.block import Block
from weft.graph.message.reduction import Aggregation
from weft.samplers.base import Batch, Sampler
from weft.samplers.core.block import block_of
from weft.samplers.neighbor import NeighborSampler
from weft.samplers.workers.part_block import BatchDegrees
from weft.samplers.workers.partitioned import PartitionedBatch, PartitionedSampler


class InputBlock(Block):
    """Rows without edges, whose aggregates are known: `sums` has one for each call of a pass, in order."""

    def __init__(self, nodes: Tensor, x: Tensor, sums: Sequence[Tensor], **parts: Any) -> None:
        none = torch.zeros(0, dtype=torch.int64)
        super().__init__(
            torch.zeros(len(nodes) + 1, dtype=torch.int64),
            none.int(),
            num_src=len(nodes),
            src_ids=nodes,
            edge_ids=none,
            **parts,
        )
        self.x, self.sums, self.calls = x, sums, 0

    def begin(self) -> None:
        """Begin a pass."""
        self.calls = 0

    def prefers_aggregate_first(self, h: Any) -> bool:
        """Return True: what is known is the aggregate of inputs, before any transform."""
        return True

    def _aggregate(self, h: Any, how: Aggregation) -> Any:
        """Return what is known; refuse the aggregate of anything else."""
        if h is not self.x or self.calls == len(self.sums):
            self._refuse("aggregates what was made of the features")
        self.calls += 1
        return self.sums[self.calls - 1]

    def attend(self, *args: Any, **options: Any) -> Tensor:
        """Refuse."""
        self._refuse("attends")

    def propagate(self, *args: Any, **options: Any) -> Tensor:
        """Refuse."""
        self._refuse("computes functions of edges")

    def edge_index(self) -> Tensor:
        """Refuse."""
        self._refuse("looks at edges")

    def by_relation(self) -> Any:
        """Refuse."""
        self._refuse("looks at relations")

    def _refuse(self, what: str) -> NoReturn:
        raise InputError(
            f"strategy.preprocess: the first layer {what}, so no sum of its inputs can be known; use "
            "preprocess = false"
        )


class InputSampler(Sampler):
    """Draw a hop less than a model has: `fanout` is of the layers above the first, `sums` [N, …] its own."""

    graph: Graph

    def __init__(
        self, graph: Graph, fanout: Sequence[int], *, sums: Sequence[Tensor], **options: Any
    ) -> None:
        self.draws = NeighborSampler(graph, fanout, **options)
        super().__init__(graph, seed=self.draws.seed, resample=self.draws.resample)
        self.sums = sums

    def sample(self, seeds: Any, epoch: int = 0, step: int = 0) -> Batch:
        """Return the batch of these nodes."""
        drawn, graph = self.draws.sample(seeds, epoch, step), self.graph
        rows, inner = drawn.nodes, drawn.nodes[: drawn.blocks[0].num_dst]
        indptr, edges = entries_of_rows(graph.indptr, inner)
        nodes, places = kernels.relabel(torch.cat([rows, graph.indices[edges].long()]))
        x = graph.x[rows]
        sums = [each[rows] for each in self.sums]
        first = InputBlock(rows, x, sums, edge_data=graph.edge_data, degrees=graph)
        batch = Batch(
            graph,
            [first, *drawn.blocks],
            nodes,
            num_seeds=drawn.seeds.numel(),
            epoch=epoch,
            step=step,
            data={"x": x},
        )
        batch.every = block_of(graph, indptr, places[len(rows) :].int(), nodes=nodes, edge_ids=edges)
        return batch


class PartitionedInputs(PartitionedSampler):
    """The same where several workers hold the graph: owners of nodes send their sums."""

    def __init__(self, *args: Any, sums: Sequence[Tensor], **options: Any) -> None:
        super().__init__(*args, **options)
        self.sums = sums

    def sample(self, seeds: Any, epoch: int = 0, step: int = 0, **seen: Any) -> Batch:
        """Return this member's share of a batch."""
        if seen:
            raise InputError(
                f"preprocess: sums of inputs are over all edges, whatever {', '.join(seen)} says"
            )
        reached = self.reach(seeds, epoch, step)
        requests, rows, hops = reached.requests, reached.rows, self.draws.hops
        inner = requests.first(hops, self.group)  # those that something was drawn for
        every = self.answered(inner, [self.all_edges_of(ids) for ids in inner.ids])
        nodes, local = self._find(rows, every.src)
        requests.add(nodes[len(rows) :])
        degrees = BatchDegrees(self.degrees_of(requests))
        read = requests.first(hops + 1, self.group)  # those that a row is computed for
        own = self.own_rows(torch.cat(read.ids))
        x = self.features_of(read, rows)
        sums = [read.fixed(each[own]) for each in self.sums]
        weights = {name: value[:0] for name, value in self.shard.edge_data.items()}
        first = InputBlock(rows, x, sums, edge_data=weights, degrees=degrees)
        batch = PartitionedBatch(
            self.graph,
            [first, *(self._block(*hop, rows, degrees) for hop in reversed(reached.hops))],
            nodes,
            num_seeds=reached.num_seeds,
            requests=requests,
            epoch=epoch,
            step=step,
            data={"x": x, "y": self.shard.of_target("y", rows[: reached.num_seeds])},
        )
        batch.every = self._block(every, local, len(nodes), nodes, degrees)
        return batch
