"""What the blocks of a shard share, however it is cut: its edge data, its rows by type, its inputs joined."""

from typing import Any, Literal, cast

import torch
from torch import Tensor

from weft.errors import GraphError
from weft.exchanges.base import Exchange
from weft.exchanges.features import fetch_halo
from weft.graph.message.block import Block, Rows
from weft.graph.message.reduction import Aggregation, Propagation
from weft.graph.parts.shard import Shard
from weft.graph.sparse import Features


class ShardBlock(Block):
    """Edges of a shard. Callers hold the rows of its own nodes."""

    exchange: Exchange
    """What brings the rows of others, where a block has them brought."""

    def __init__(self, shard: Shard, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.shard = shard
        self.joined_inputs: list[tuple[Any, Any]] = []

    def edge(self, name: str) -> Tensor:
        if name not in self.edge_data:
            known = ", ".join(self.edge_data) or "none"
            raise GraphError(f"the graph has no edge data {name!r}; it has: {known}")
        return self.edge_data[name]

    def type_ranges(self, rows: Rows = "src") -> dict[str, slice]:
        """Return the rows of each node type among those that a caller holds, whichever end is meant."""
        return self.shard.type_ranges()

    def _propagate(self, how: Propagation) -> Tensor:
        return super()._propagate(self.crossed(how))

    def crossed(self, how: Propagation) -> Propagation:
        """Return the same messages of what should travel for them."""
        return how

    def join_constant(self, h: Any) -> Any:
        """Return an input with the rows of others below it: fetched once, exactly."""
        for held, joined in self.joined_inputs:
            if held is h:
                return joined
        with torch.inference_mode(False), torch.no_grad():
            joined = fetch_halo(h, self.exchange.whole_plan, self.exchange.group)
        self.joined_inputs.append((h, joined))
        return joined


class OneRelation(Block):
    """The edges of one relation, with the degrees and edge data of the block they are from."""

    def __init__(self, block: ShardBlock, relation: int) -> None:
        edges = cast(Tensor, block.relation_edges(relation))
        super().__init__(
            torch.searchsorted(edges, block.indptr),
            block.indices[edges],
            num_src=block.num_src,
            src_ids=block.src_ids,
            dst_ids=block.dst_ids,
            edge_ids=block.edge_ids[edges],
            edge_data={name: value[edges] for name, value in block.edge_data.items()},
            parent=block,
        )
        self._whole, self._edges = block, edges

    def src(self, h: Any) -> Any:
        """Return own rows and the halo."""
        return self._whole.src(h)

    def edge(self, name: str) -> Tensor:
        """Return edge data in the order of this block."""
        if name not in self.edge_data:
            return self._whole.edge(name)
        return self.edge_data[name]

    def multiplicity(self) -> Tensor | None:
        whole = self._whole.multiplicity()
        return None if whole is None else whole[self._edges]

    def _propagate(self, how: Propagation) -> Tensor:
        return super()._propagate(self._whole.crossed(how))

    def _aggregate(self, h: Features, how: Aggregation) -> Features:
        stands_for = self.multiplicity() if how.adds else None
        return super()._aggregate(h, how if stands_for is None else how.weighed(stands_for, h.dtype))

    def row_degree(
        self, direction: Literal["in", "out"], rows: Rows, relation: int | None, weighted: bool
    ) -> Tensor:
        return self._whole.row_degree(direction, rows, relation, weighted)
