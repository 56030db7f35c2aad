"""What a rank holds of the graph, under the names that a whole `Graph` has."""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any

import torch
from torch import Tensor

from weft.graph.node_data import AS_IT_IS, NodeData
from weft.graph.parts.shard import Shard
from weft.graph.sparse import Features, SparseFeatures


class LocalGraph(NodeData):
    """The rows of one rank. Counts and types are those of the whole graph, data are the rank's own.

    `facts` is the summary of the whole graph, where somebody who had it wrote one. With `device` the shard
    lies there; `home` is the one on the CPU, which plans are made of.
    """

    def __init__(
        self,
        shard: Shard,
        *,
        dtype: torch.dtype | None = None,
        facts: Mapping[str, Any] | None = None,
        device: torch.device | None = None,
    ) -> None:
        self.home = shard if dtype is None else _typed(shard, dtype)
        self.shard: Shard = self.home if device is None else _moved(self.home, device)
        self.facts = facts
        self.num_nodes, self.num_edges = shard.num_nodes, shard.num_edges
        self.node_types, self.node_offsets = shard.node_types, shard.node_offsets
        self.edge_types, self.edge_data = shard.edge_types, self.shard.edge_data
        self.node_data = self.shard.node_data
        self.target_counts = shard.target_counts
        self.indptr = self.shard.indptr
        self.target_rows = shard.type_ranges()[shard.target_type]

    @property
    def owned(self) -> Tensor | None:
        """Which rows count here: the roots among replicas, [n] bool; None where all of them do."""
        if self.shard.cuts != "edges":
            return None
        parts = torch.tensor(self.shard.parts, dtype=torch.int32, device=self.shard.node_part.device)
        return torch.isin(self.shard.node_part, parts)

    @property
    def own_ids(self) -> Tensor:
        """The global ids of the nodes that count here, [n]."""
        owned = self.owned
        return self.home.node_ids if owned is None else self.shard.node_ids[owned].cpu()

    @property
    def target_type(self) -> str:
        return self.shard.target_type

    def summary(self) -> dict[str, Any]:
        """Return the counts of the whole graph, and its statistics where they are known."""
        offsets = zip(self.node_types, self.node_offsets, self.node_offsets[1:])
        counts = {
            "num_nodes": self.num_nodes,
            "num_edges": self.num_edges,
            **self.target_counts._asdict(),
            "node_types": {kind: stop - start for kind, start, stop in offsets},
        }
        return counts if self.facts is None else dict(self.facts)


def _moved(value: Any, device: torch.device) -> Any:
    """Return a shard, or a part of one, with its tensors on a device."""
    if isinstance(value, Tensor | SparseFeatures):
        return value.to(device)
    if isinstance(value, dict):
        return {name: _moved(part, device) for name, part in value.items()}
    if is_dataclass(value) and not isinstance(value, type):
        part = {item.name: _moved(getattr(value, item.name), device) for item in fields(value)}
        return replace(value, **part)
    return value


def _typed(shard: Shard, dtype: torch.dtype) -> Shard:
    """Return the shard with floating data in a dtype, as `Graph.to` gives a whole graph."""

    def moved(name: str, value: Features) -> Any:
        free = name not in AS_IT_IS and value.dtype.is_floating_point
        return value.to(dtype) if free else value

    return replace(
        shard,
        node_data={
            kind: {name: moved(name, value) for name, value in data.items()}
            for kind, data in shard.node_data.items()
        },
        edge_data={name: moved(name, value) for name, value in shard.edge_data.items()},
    )
