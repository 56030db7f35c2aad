"""The block of edges that owners drew: what a member knows of its rows and edges, as blocks ask for it."""

from collections.abc import Sequence
from typing import Literal, cast

import torch
from torch import Tensor

from weft.errors import GraphError
from weft.graph.degrees import Degrees
from weft.graph.parts.shard import Shard
from weft.samplers.core.block import Degree, SampledBlock


class BatchDegrees:
    """Degrees in the whole graph of the rows of a batch; blocks show the first of them."""

    def __init__(self, degrees: Degrees, seen: "dict[int | None, Tensor] | None" = None) -> None:
        self.degrees, self._seen = degrees, seen

    def seen(self, count: int) -> Degree | None:
        """Return the degrees of the first rows as their seeds see them, by relation; None without times."""
        seen = self._seen
        if seen is None:
            return None

        def degree(relation: int | None) -> Tensor:
            if relation in seen or (relation == 0 and len(seen) == 1):
                return seen.get(relation, seen[None])[:count]
            raise GraphError("degrees by relation need a fanout by relation where edges have times")

        return degree

    def degree(self, direction: Literal["in", "out"], relation: int | None, weighted: bool) -> Tensor:
        return cast(Tensor, _First(self.degrees[direction, relation, weighted]))


class _First:
    """One value per row of a batch, asked for by the ids of the first rows of it."""

    def __init__(self, values: Tensor) -> None:
        self.values = values

    def __getitem__(self, ids: Tensor) -> Tensor:
        return self.values[: ids.numel()]


class ByEdge:
    """Values of edges, asked for by id."""

    def __init__(self, ids: Tensor, values: Tensor) -> None:
        self.ids, self.values = ids, values

    def __getitem__(self, ids: Tensor) -> Tensor:
        if ids is self.ids:
            return self.values
        ordered, order = torch.sort(self.ids)
        return self.values[order[torch.searchsorted(ordered, ids)]]


def block_of_part(
    shard: Shard,
    indptr: Tensor,
    indices: Tensor,
    edge_ids: Tensor,
    edge_scale: Tensor | None,
    edge_type: Tensor | None,
    data: Sequence[Tensor],
    *,
    nodes: Tensor,
    degrees: BatchDegrees,
    kind: type[SampledBlock] = SampledBlock,
    seen_degree: Degree | None = None,
) -> SampledBlock:
    """Return the block of edges that owners drew; `data` is in the order of the names of edge data."""
    return kind(
        indptr,
        indices,
        num_src=len(nodes),
        edge_scale=edge_scale,
        seen_degree=seen_degree,
        node_types=shard.node_types,
        node_offsets=shard.node_offsets,
        src_ids=nodes,
        edge_ids=edge_ids,
        edge_type=edge_type,
        num_relations=len(shard.edge_types),
        edge_data={
            name: cast(Tensor, ByEdge(edge_ids, column)) for name, column in zip(shard.edge_data, data)
        },
        degrees=degrees,
    )
