"""GIN: Xu et al., How Powerful are Graph Neural Networks?, 2019."""

import torch
from torch import Tensor, nn

from weft.graph.message.block import Block
from weft.graph.sparse import Features
from weft.layers.base import Layer, Linear, aggregate_linear, layers, linear, require_positive


def perceptron(in_features: int, hidden: int, out_features: int) -> nn.Sequential:
    """Return Linear, ReLU, Linear: the network inside GIN, GINE and EdgeConv."""
    return nn.Sequential(Linear(in_features, hidden), nn.ReLU(), Linear(hidden, out_features))


@layers.add("gin")
class GIN(Layer):
    """h'ᵥ = MLP((1 + ε) hᵥ + Σ hᵤ); the MLP is Linear, ReLU, Linear, `hidden` wide (or out_features)."""

    output_is_free = True
    eps: Tensor

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        hidden: int | None = None,
        eps: float = 0.0,
        train_eps: bool = False,
    ) -> None:
        super().__init__(in_features, out_features)
        hidden = out_features if hidden is None else hidden
        require_positive(self, hidden=hidden)
        self.nn = perceptron(in_features, hidden, out_features)
        set_eps(self, eps, train_eps)

    def forward(self, block: Block, h: Features) -> Tensor:
        # The first linear map commutes with the sum, so the neighbours' side takes the cheaper order.
        first = self.nn[0]
        assert isinstance(first, Linear)
        neighbours = aggregate_linear(block, h, first.weight, "sum", bias=first.bias)
        own = linear(block.dst(h), first.weight)
        out: Tensor = self.nn[2](torch.addcmul(neighbours, own, 1 + self.eps).relu_())
        return out


def set_eps(layer: nn.Module, eps: float, train_eps: bool) -> None:
    """Give the layer its ε, a parameter when it is learned and a buffer otherwise, as in PyG."""
    value = torch.full((1,), float(eps))
    if train_eps:
        layer.eps = nn.Parameter(value)
    else:
        layer.register_buffer("eps", value)
