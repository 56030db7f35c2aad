"""GCN: Kipf and Welling, Semi-Supervised Classification with Graph Convolutional Networks, 2017."""

import torch
from torch import Tensor, nn

from weft.graph.message.block import Block
from weft.graph.sparse import Features
from weft.layers.base import Layer, Linear, aggregate_linear, gcn_scales, layers


@layers.add("gcn")
class GCN(Layer):
    """h'ᵥ = Σ e(u,v) / √(dᵤ dᵥ) · W hᵤ + b; d: the whole graph's (weighted) in-degrees, loops included."""

    self_loops = True
    output_is_free = True

    def __init__(self, in_features: int, out_features: int, *, bias: bool = True) -> None:
        super().__init__(in_features, out_features)
        self.lin = Linear(in_features, out_features, bias=False, glorot=True)
        self.bias = nn.Parameter(torch.zeros(out_features)) if bias else None

    def forward(self, block: Block, h: Features) -> Tensor:
        return aggregate_linear(
            block, h, self.lin.weight, "sum", bias=self.bias, **gcn_scales(block, h.dtype)
        )
