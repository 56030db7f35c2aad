"""GINE: Hu et al., Strategies for Pre-training Graph Neural Networks, 2020: GIN with edge features."""

import torch
from torch import Tensor

from weft.errors import InputError
from weft.graph.message.block import Block
from weft.graph.sparse import Features
from weft.layers.base import Layer, Linear, dense, edge_attr, layers, require_positive
from weft.layers.gin import perceptron, set_eps


@layers.add("gine")
class GINE(Layer):
    """h'ᵥ = MLP((1 + ε) hᵥ + Σ ReLU(hᵤ + W_e e)); needs a graph with edge_attr."""

    takes_edge_features = True
    eps: Tensor

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        edge_features: int,
        hidden: int | None = None,
        eps: float = 0.0,
        train_eps: bool = False,
    ) -> None:
        super().__init__(in_features, out_features)
        hidden = out_features if hidden is None else hidden
        if edge_features == 0:
            raise InputError("GINE needs edge features but the graph has no edge_attr; use 'gin'")
        require_positive(self, hidden=hidden, edge_features=edge_features)
        self.nn = perceptron(in_features, hidden, out_features)
        self.lin = Linear(edge_features, in_features)
        set_eps(self, eps, train_eps)

    def forward(self, block: Block, h: Features) -> Tensor:
        rows = dense(h)
        summed = block.propagate(
            _message,
            src=(rows,),
            edge=(edge_attr(self, block),),
            reduce="sum",
            params=tuple(self.lin.parameters()),
        )
        out: Tensor = self.nn(summed + (1 + self.eps) * block.dst(rows))
        return out


def _message(neighbour: Tensor, edge: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return (neighbour + torch.nn.functional.linear(edge, weight, bias)).relu()
