"""GraphSAGE: Hamilton, Ying and Leskovec, Inductive Representation Learning on Large Graphs, 2017."""

from typing import Literal

import torch
from torch import Tensor

from weft.graph.message.block import Block
from weft.graph.sparse import Features
from weft.layers.base import Layer, Linear, aggregate_linear, layers, linear, require_choice, unit_rows


@layers.add("sage")
class SAGE(Layer):
    """h'ᵥ = W_l · aggregate(hᵤ) + W_r · hᵥ + b; "gcn" has one matrix for node and neighbours.

    `project` passes the neighbours through a ReLU layer first (with "max": the pooling aggregator of the
    paper), `normalize` scales the rows of the output to length 1.
    """

    output_is_free = True

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        aggregate: Literal["mean", "max", "sum", "gcn"] = "mean",
        project: bool = False,
        normalize: bool = False,
        root_weight: bool = True,
        bias: bool = True,
    ) -> None:
        super().__init__(in_features, out_features)
        require_choice(self, ("mean", "max", "sum", "gcn"), aggregate=aggregate)
        self.aggregate = aggregate
        self.normalize = normalize
        self.lin = Linear(in_features, in_features) if project else None
        self.lin_l = Linear(in_features, out_features, bias=bias)
        self.lin_r = Linear(in_features, out_features, bias=False) if self._has_root(root_weight) else None

    def forward(self, block: Block, h: Features) -> Tensor:
        neighbours = h if self.lin is None else self.lin(h).relu()
        out = self._gcn(block, neighbours) if self.aggregate == "gcn" else self._aggregate(block, neighbours)
        if self.lin_r is not None:
            out = out.add_(self.lin_r(block.dst(h)))
        return unit_rows(out) if self.normalize else out

    def _has_root(self, root_weight: bool) -> bool:
        return root_weight and self.aggregate != "gcn"

    def _aggregate(self, block: Block, h: Features) -> Tensor:
        weight, bias = self.lin_l.weight, self.lin_l.bias
        if self.aggregate == "max":
            return linear(block.aggregate(h, "max"), weight, bias)
        return aggregate_linear(block, h, weight, self.aggregate, bias=bias)  # type: ignore[arg-type]

    def _gcn(self, block: Block, h: Features) -> Tensor:
        """Return the mean over the node and its neighbours, transformed."""
        wide = torch.float64 if h.dtype == torch.float64 else torch.float32
        scale = block.cached(("sage", wide), lambda: (1.0 + block.in_degree("dst").to(wide)).reciprocal())
        out = aggregate_linear(block, h, self.lin_l.weight, "sum", dst_scale=scale)
        own = linear(block.dst(h), self.lin_l.weight)
        out = out.addcmul_(own, scale.to(own.dtype)[:, None])
        return out if self.lin_l.bias is None else out.add_(self.lin_l.bias)
