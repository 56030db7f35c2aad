"""Parts that training never leaves (PaGraph): workers copy all that L layers on their training nodes read.

The owners of nodes send their edges, degrees and features once, before the first step. What comes of it is a
shard whose own rows are the whole neighbourhood, `weft.graph.parts.closure.close` of the worker's training
nodes, and a sampler of it draws what one process draws and asks nobody.
"""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from weft.comm.group import Group
from weft.comm.ledger import Label
from weft.graph.parts.shard import Shard
from weft.samplers.core.slices import take_rows
from weft.samplers.workers.partitioned import PartitionedSampler

CLOSURE = Label("closure")


def closed_shard(shard: Shard, group: Group, seeds: Tensor, hops: int) -> Shard:
    """Return what `hops` layers on these own nodes read, as one shard; called by all members of the group."""
    sampler = PartitionedSampler(shard, group, [-1] * hops, label=CLOSURE)
    reached = sampler.reach(seeds)
    drawn, sources, _ = reached.hops[-1]  # all edges of all rows but those that only the last hop reaches
    node_ids, order = reached.rows.sort()
    row_of = torch.empty_like(order)
    row_of[order] = torch.arange(len(order))
    canonical = drawn.edge_ids.argsort()  # which is by destination
    counts = torch.zeros(len(node_ids), dtype=torch.int64)
    counts[row_of[: len(drawn.counts)]] = drawn.counts
    none = torch.zeros(0, dtype=torch.int64)
    return replace(
        shard,
        node_ids=node_ids,
        # All rows stand for own ones, whoever owns the nodes: from here on nobody is asked.
        node_part=torch.full((len(node_ids),), shard.parts[0], dtype=torch.int32),
        halo_ids=none,
        halo_part=none.int(),
        indptr=torch.cat([none.new_zeros(1), counts.cumsum(0)]),
        indices=row_of[sources][canonical].to(shard.indices.dtype),
        edge_ids=drawn.edge_ids[canonical],
        edge_type=None if drawn.edge_type is None else drawn.edge_type[canonical],
        edge_data={name: values[canonical] for name, values in drawn.data.items()},
        degrees=sampler.degrees_of(reached.requests).rows(order),
        node_data=_node_data(
            shard, sampler.features_of(reached.requests, reached.rows), reached.rows, node_ids
        ),
    )


def _node_data(shard: Shard, x: Any, rows: Tensor, node_ids: Tensor) -> dict[str, dict[str, Any]]:
    """Return features of all rows and what is known of the own, by node type; `x` is as `rows` are."""
    by_type: dict[str, dict[str, Any]] = {kind: {} for kind in shard.node_types}
    features = x if isinstance(x, dict) else {shard.node_types[0]: x} if x is not None else {}
    for kind, first, last in zip(shard.node_types, shard.node_offsets, shard.node_offsets[1:]):
        if kind in features:
            ids = rows[(rows >= first) & (rows < last)]
            by_type[kind]["x"] = take_rows(features[kind], ids.argsort())
        if kind == shard.target_type:
            by_type[kind] |= shard.known_data(node_ids[(node_ids >= first) & (node_ids < last)])
    return by_type
