"""What the published schedule of delayed sums gives, in plain words, and what ranks do to be held to it."""

from collections import Counter
from collections.abc import Iterator
from functools import cached_property
from typing import Any

import torch
from halo_jobs import NODES, far, graph_of
from torch import Tensor

from weft.comm.group import Group
from weft.exchanges.delayed import _bins
from weft.graph.parts.assignment import Assignment
from weft.graph.parts.shard import Shard, make_shards
from weft.strategies.local import LocalGraph
from weft.strategies.merged.vertex_cut import VertexCut


class Schedule:
    """Sums over the replicas of every node, delayed by r: what each part reads in an epoch, and how old."""

    def __init__(self, shards: list[Shard], r: int) -> None:
        self.shards, self.r = shards, r
        self.turn = _bins(torch.arange(NODES), r).tolist()
        self.root = {}
        for shard in shards:
            self.root |= dict(zip(shard.node_ids.tolist(), shard.node_part.tolist()))

    @cached_property
    def holders(self) -> dict[int, list[int]]:
        """The parts that hold a replica of each node."""
        held = {node: [] for node in range(NODES)}
        for part, shard in enumerate(self.shards):
            for node in shard.node_ids.tolist():
                held[node].append(part)
        return held

    def arrived(self, node: int, epoch: int) -> int:
        """Return the epoch of what one way brought last: sent in the node's turn, r epochs ago or more."""
        turns = [e for e in range(1, epoch + 1) if e % self.r == self.turn[node] and e + self.r <= epoch]
        return max([0, *turns])

    def sources(self, node: int, part: int, epoch: int) -> Iterator[tuple[int, int]]:
        """Give the parts whose result a replica adds up, and of which epoch it is."""
        root = self.root[node]
        reply = epoch if part == root else self.arrived(node, epoch)
        for other in self.holders[node]:
            if other == part:
                yield other, epoch
            elif other == root:
                yield other, reply
            else:
                yield other, self.arrived(node, reply)

    def read(self, part: int, epoch: int, results: list[list[Tensor]], fold: Any) -> Tensor:
        """Return what the replicas of a part read; `results[e][p]` are those of epoch e, by node."""
        rows = [
            fold(torch.stack([results[when][other][node] for other, when in self.sources(node, part, epoch)]))
            for node in self.shards[part].node_ids.tolist()
        ]
        return torch.stack(rows)

    def ages(self, part: int, epoch: int) -> Counter[int]:
        """Return how old the rows are that come to a part: one a leaf for a root, the oldest for a leaf."""
        found: Counter[int] = Counter()
        for node in self.shards[part].node_ids.tolist():
            old = [epoch - when for other, when in self.sources(node, part, epoch) if other != part]
            found.update(old if part == self.root[node] else [max(old)])
        return found


def values(epoch: int, stream: int) -> Tensor:
    """Return numbers of every node that every rank can compute."""
    generator = torch.Generator().manual_seed(100 * stream + epoch)
    return torch.randn(NODES, 3, dtype=torch.float64, generator=generator)


def follows_schedule(group: Group, r: int = 2) -> list[str]:
    """Train three turns and more; return where sums, gradients, maxima or ages are not the schedule's."""
    graph = graph_of("hub")
    edges = (torch.arange(graph.num_edges) % group.size).int()
    shards = make_shards(graph, Assignment(edges, group.size, cuts="edges"))
    schedule, shard = Schedule(shards, r), shards[group.rank]
    strategy = VertexCut(LocalGraph(shard), group=group, exchange={"name": "delayed", "r": r})
    sums, largest, gradients, wrong = [], [], [], []
    for epoch in range(3 * r + 2):
        h, g = values(epoch, 0), values(epoch, 1)
        sums.append([_partial(each, h, "sum") for each in shards])
        largest.append([_partial(each, h, "max") for each in shards])
        gradients.append([g for _ in shards])
        strategy.clock[1] = epoch
        block: Any = strategy.layout.training_block()
        rows = h[shard.node_ids].requires_grad_()
        group.ledger.clear()
        out = block.aggregate(rows)
        out.backward(g[shard.node_ids])
        ages = Counter({age: count for age, count in group.ledger.staleness.items() if count})
        top = block.aggregate(h[shard.node_ids], "max")
        strategy.end_step()
        expected = {
            "sum": (out.detach(), schedule.read(group.rank, epoch, sums, lambda each: each.sum(0))),
            "max": (top, schedule.read(group.rank, epoch, largest, lambda each: each.amax(0))),
            "gradient": (rows.grad, _back(shard, schedule.read(group.rank, epoch, gradients, _add))),
        }
        for what, (found, wanted) in expected.items():
            if far(found, wanted.where(wanted > -torch.inf, 0.0)) > 1e-12:
                wrong.append(f"epoch {epoch}: the {what} is not what r = {r} gives")
        forward = schedule.ages(group.rank, epoch)  # and back: the gradient of a sum is a sum of the same
        if ages != forward + forward:
            wrong.append(f"epoch {epoch}: ages {dict(ages)}")
    strategy.state()
    strategy.close()
    return wrong


def _add(rows: Tensor) -> Tensor:
    return rows.sum(0)


def _partial(shard: Shard, h: Tensor, reduce: str) -> Tensor:
    """Return the result over the edges of a part, by node; minus infinity for the maximum of none."""
    count = shard.indptr.diff()
    rows = torch.repeat_interleave(shard.node_ids, count)
    messages = h[shard.node_ids[shard.indices.long()]]
    if reduce == "sum":
        return torch.zeros_like(h).index_add_(0, rows, messages)
    lowest = torch.full_like(h, -torch.inf)
    return lowest.scatter_reduce(0, rows[:, None].expand_as(messages), messages, "amax")


def _back(shard: Shard, gradient: Tensor) -> Tensor:
    """Return the gradient of the rows here from that of the results here."""
    rows = torch.repeat_interleave(shard.indptr.diff())
    return torch.zeros_like(gradient).index_add_(0, shard.indices.long(), gradient[rows])
