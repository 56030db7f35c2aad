"""EdgeConv: Wang et al., Dynamic Graph CNN for Learning on Point Clouds, 2019."""

from typing import Literal

import torch.nn.functional as F
from torch import Tensor

from weft.graph.message.block import Block
from weft.graph.sparse import Features
from weft.layers.base import Layer, Linear, layers, linear, require_choice, require_positive
from weft.layers.gin import perceptron


@layers.add("edgeconv")
class EdgeConv(Layer):
    """h'ᵥ = max over neighbours of MLP([hᵥ, hᵤ - hᵥ]); the MLP is Linear, ReLU, Linear of `hidden` units."""

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        hidden: int | None = None,
        aggregate: Literal["max", "mean", "sum"] = "max",
    ) -> None:
        super().__init__(in_features, out_features)
        hidden = out_features if hidden is None else hidden
        require_positive(self, hidden=hidden)
        require_choice(self, ("max", "mean", "sum"), aggregate=aggregate)
        self.aggregate = aggregate
        self.nn = perceptron(2 * in_features, hidden, out_features)

    def forward(self, block: Block, h: Features) -> Tensor:
        # W [hᵥ, hᵤ - hᵥ] = (W₁ - W₂) hᵥ + W₂ hᵤ: the first map runs on nodes, only the second on edges.
        first, last = self.nn[0], self.nn[2]
        assert isinstance(first, Linear)
        centre, offset = first.weight.chunk(2, dim=1)
        own = linear(block.dst(h), centre - offset, first.bias)
        neighbours = linear(h, offset)
        return block.propagate(
            _message, src=(neighbours,), dst=(own,), reduce=self.aggregate, params=tuple(last.parameters())
        )


def _message(neighbour: Tensor, own: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return F.linear((neighbour + own).relu(), weight, bias)
