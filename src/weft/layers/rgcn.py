"""R-GCN: Schlichtkrull et al., Modeling Relational Data with Graph Convolutional Networks, 2018."""

from typing import Any

import torch
from torch import Tensor, nn

from weft import kernels
from weft.graph.message.block import Block
from weft.graph.relations import RelationBlock
from weft.graph.sparse import Features, SparseFeatures
from weft.layers.base import GraphInfo, Layer, glorot_, layers, linear, require_positive


@layers.add("rgcn")
class RGCN(Layer):
    """h'ᵥ = W₀ hᵥ + Σ_r 1/c_{v,r} Σ_{u ∈ N_r(v)} W_r hᵤ + b, c the whole graph's in-degree in r.

    With `bases` = B, W_r = Σ_b comp[r, b] · weight[b]. Each (relation, source) pair that occurs is
    transformed once; nothing of size nodes x relations is formed.
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        num_relations: int,
        bases: int | None = None,
        root_weight: bool = True,
        bias: bool = True,
    ) -> None:
        super().__init__(in_features, out_features)
        require_positive(self, num_relations=num_relations)
        if bases is not None:
            require_positive(self, bases=bases)
        self.num_relations = num_relations
        self.bases = bases
        self.weight = nn.Parameter(torch.empty(bases or num_relations, in_features, out_features))
        self.comp = None if bases is None else nn.Parameter(torch.empty(num_relations, bases))
        self.root = nn.Parameter(torch.empty(in_features, out_features)) if root_weight else None
        self.bias = nn.Parameter(torch.zeros(out_features)) if bias else None
        for value in (self.weight, self.comp, self.root):
            if value is not None:
                glorot_(value)

    @classmethod
    def options_of(cls, info: GraphInfo) -> dict[str, Any]:
        return {"num_relations": info.num_relations}

    def forward(self, block: Block, h: Features) -> Tensor:
        out = self._neighbours(block, h)
        if self.root is not None:
            out = out.add_(linear(block.dst(h), self.root.t()))
        return out if self.bias is None else out.add_(self.bias)

    def relation_weights(self) -> Tensor:
        """Return [num_relations, in_features, out_features]."""
        if self.comp is None:
            return self.weight
        return (self.comp @ self.weight.flatten(1)).view(-1, self.in_features, self.out_features)

    def _neighbours(self, block: Block, h: Features) -> Tensor:
        weights = self.relation_weights()
        rows = h if isinstance(h, Tensor) else block.src(h)
        if isinstance(rows, Tensor):
            mean = relation_mean(block, rows.dtype)
            return block.aggregate_pairs(_transformed, (rows,), (weights,), weight=mean)
        pairs = block.by_relation()
        each = stacked_rows(pairs, rows).matmul(weights.reshape(-1, self.out_features))
        return pairs.aggregate(each, "sum", weight=relation_mean(block, each.dtype))


def _transformed(pairs: RelationBlock, rows: Tensor, weights: Tensor) -> Tensor:
    """Return the source row of each pair, transformed by the weights of its relation."""
    return kernels.segment_matmul(rows, pairs.offsets, weights, pairs.rows)


def stacked_rows(pairs: RelationBlock, x: SparseFeatures) -> SparseFeatures:
    """Return each pair's sparse row, its columns moved to r·F … to meet the weights [R·F, out]."""
    made_of, stacked = pairs.cached("stacked rows", lambda: (x, _stack_rows(pairs, x)))
    return stacked if made_of is x else _stack_rows(pairs, x)


def _stack_rows(pairs: RelationBlock, x: SparseFeatures) -> SparseFeatures:
    taken = x.rows(pairs.rows)
    width = x.shape[1] * pairs.num_relations
    shift = torch.repeat_interleave(torch.arange(pairs.num_relations) * x.shape[1], pairs.offsets.diff())
    columns = taken.indices + shift.to(x.device)[taken.row_ids]
    index = torch.int32 if width < 2**31 else torch.int64
    return SparseFeatures(taken.indptr, columns.to(index), taken.values, (taken.shape[0], width))


def relation_mean(block: Block, dtype: torch.dtype) -> Tensor:
    """Return [E]: one over the number of the whole graph's edges with that target and relation."""
    return block.cached(
        ("relation mean", dtype), lambda: block.relation_in_degree().double().reciprocal().to(dtype)
    )
