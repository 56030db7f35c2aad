"""The edges of a block with a source row for each (relation, source) pair: what typed layers compute on."""

from typing import Any, ClassVar

import torch
from torch import Tensor

from weft.errors import GraphError
from weft.graph.message.block import Block, Rows


class RelationBlock(Block):
    """The same edges with a source row for each (relation, source) pair that occurs, sorted by relation.

    A typed layer transforms each pair once with the weight of its relation, then aggregates in one call:

        pairs = block.by_relation()
        hr = segment_matmul(block.src(h), pairs.offsets, weights, pairs.rows)  # weights [R, in, out]
        out = pairs.aggregate(hr, "sum", weight=norm)
    """

    derived_from: ClassVar[frozenset[str]] = Block.derived_from | {"_whole"}

    def __init__(self, block: Block) -> None:
        kinds = torch.zeros_like(block.indices) if block.edge_type is None else block.edge_type
        pairs = kinds.long() * block.num_src + block.indices.long()
        occurring, place = torch.unique(pairs, return_inverse=True)
        bounds = torch.arange(block.num_relations + 1, device=block.device) * block.num_src
        self.rows = (
            occurring % block.num_src if block.num_src else occurring
        )  # [num_src] source row of each pair
        self.offsets = torch.searchsorted(occurring, bounds).cpu()  # [R + 1] pairs before each relation
        super().__init__(
            block.indptr,
            place.to(block.indices.dtype),
            num_src=occurring.numel(),
            src_ids=block.src_ids[self.rows],
            dst_ids=block.dst_ids,
            edge_ids=block.picked_edges,
            edge_type=block.edge_type,
            num_relations=block.num_relations,
            parent=block,
        )
        self._whole = block

    def edge(self, name: str) -> Tensor:
        """Return the edge data of the block it was made from: the edges are the same, in the same order."""
        return self._whole.edge(name)

    def has_edge(self, name: str) -> bool:
        return self._whole.has_edge(name)

    def multiplicity(self) -> Tensor | None:
        """Return how many edges of the whole graph each edge stands for, as in the block it was made from."""
        return self._whole.multiplicity()

    def in_degree(self, rows: Rows = "dst", relation: int | None = None, *, weighted: bool = False) -> Tensor:
        """Return the in-degrees of the parent's rows: of each destination, or of each pair's source."""
        degree = self._whole.in_degree(rows, relation, weighted=weighted)
        return degree if rows == "dst" else degree[self.rows]

    def out_degree(
        self, rows: Rows = "src", relation: int | None = None, *, weighted: bool = False
    ) -> Tensor:
        """Return the out-degrees of the parent's rows: of each destination, or of each pair's source."""
        degree = self._whole.out_degree(rows, relation, weighted=weighted)
        return degree if rows == "dst" else degree[self.rows]

    def dst(self, h: Any) -> Any:
        """Refuse: the rows are pairs, destinations are rows of the block it was made from."""
        raise GraphError(
            "rows of a RelationBlock are (relation, source) pairs; use dst() of the original block"
        )
