"""Neighbourhoods of important nodes, which every worker holds and so asks of nobody (AliGraph).

A node is important where many read it for the few that it reads itself. AliGraph reads along edges, weft's
samplers against them: its in-neighbours, who read a node, are the targets of our edges.
"""

from dataclasses import dataclass, replace
from typing import Annotated, Any, Protocol

import torch
from torch import Tensor

from weft.comm.group import Group
from weft.config import Range
from weft.graph.parts.shard import Shard
from weft.graph.sorting import distinct
from weft.graph.sparse import Features
from weft.samplers.workers.partitioned import PartitionedSampler
from weft.samplers.workers.row_requests import LABEL, RowRequests


@dataclass(frozen=True)
class Replicate:
    """Which neighbourhoods every worker holds."""

    threshold: Annotated[float, Range(above=0)] = 0.2
    """The least importance of a node."""
    hops: Annotated[int, Range(least=1)] = 1
    """How far importance looks, and how many hops around a node are held."""


class HeldEnds(Protocol):
    """Edges by the global ids of their ends: of a whole graph, or those that a rank holds."""

    @property
    def num_nodes(self) -> int:
        """The nodes of the whole graph."""

    def ends(self) -> tuple[Tensor, Tensor]:
        """Return source and target of each edge that is here."""


def importance(graph: HeldEnds, group: Group, hops: int) -> Tensor:
    """Return (paths of 1 … `hops` edges out of a node) / (paths into it), [N] float64; all ranks call.

    Nodes without edges into them count as having one. `stores.importance` gives the same of the whole graph.
    """
    src, dst = graph.ends()
    readers, needed = (_paths(*ends, graph.num_nodes, hops, group) for ends in ((dst, src), (src, dst)))
    return readers / needed.clamp(min=1.0)


def important(shard: Shard, group: Group, asked: Replicate) -> Tensor:
    """Return the nodes whose edges every worker is to hold, ascending; the same on all ranks.

    For each k up to `hops`: nodes of a k-hop importance of at least the threshold, and those that are at most
    k − 1 hops before them.
    """
    src, dst = shard.ends()
    chosen = torch.zeros(shard.num_nodes, dtype=torch.bool)
    for hops in range(1, asked.hops + 1):
        rows = importance(shard, group, hops) >= asked.threshold
        for _ in range(hops - 1):
            marks = torch.zeros(shard.num_nodes, dtype=torch.int32)
            # max of marks, since several ranks may find one node; each then has the same set without a list
            # of ids.
            marks[src[rows[dst]]] = 1
            rows = rows | group.all_reduce(marks, "max", label=LABEL).wait().bool()
        chosen |= rows
    return chosen.nonzero().flatten()


def with_replicas(sampler: PartitionedSampler, nodes: Tensor) -> Shard:
    """Return what a worker draws from: its own rows and, of others, these nodes [n]; all ranks call.

    They come with their edges, degrees and, where batches ask owners for features, with these.
    """
    shard = sampler.shard
    wanted = nodes[sampler.owner[nodes] != sampler.group.rank]
    requests = RowRequests(sampler.owner, sampler.group)
    requests.add(wanted)
    edges = sampler.answered(requests, [sampler.all_edges_of(ids) for ids in requests.ids])
    x = None if sampler.features is not None else sampler.features_of(requests, wanted)
    halo = distinct(edges.src)
    halo = halo[~torch.isin(halo, wanted)]
    requests.add(halo)
    parts = requests.fixed(shard.node_part[sampler.own_rows(torch.cat(requests.ids))])
    rows, order = torch.cat([wanted, halo]).sort()
    data: dict[str, Any] = x if isinstance(x, dict) else {shard.node_types[0]: x}
    kept: dict[str, dict[str, Features]] = {
        kind: {} if data.get(kind) is None else {"x": data[kind]} for kind in shard.node_types
    }
    replicas = replace(
        shard,
        part=-1,
        node_ids=wanted,
        node_part=parts[: len(wanted)],
        halo_ids=halo,
        halo_part=parts[len(wanted) :],
        indptr=edges.indptr,
        indices=order[torch.searchsorted(rows, edges.src.contiguous())],
        edge_ids=edges.edge_ids,
        edge_type=edges.edge_type,
        edge_data=edges.data,
        degrees=sampler.degrees_of(requests),
        node_data=kept,
    )
    names = {kind: list(columns) for kind, columns in kept.items()}
    own = {kind: {name: shard.node_data[kind][name] for name in names[kind]} for kind in shard.node_types}
    return Shard.merge([replace(shard, node_data=own), replicas])


def _paths(read: Tensor, write: Tensor, num_nodes: int, hops: int, group: Group) -> Tensor:
    total = torch.zeros(num_nodes, dtype=torch.float64)
    ends = torch.ones(num_nodes, dtype=torch.float64)
    for _ in range(hops):
        ends = torch.zeros_like(ends).index_add_(0, write, ends[read])
        ends = group.all_reduce(ends, label=LABEL).wait()
        total += ends
    return total
