"""GATv2: Brody, Alon and Yahav, How Attentive are Graph Attention Networks?, 2022."""

import torch
from torch import Tensor, nn

from weft.graph.message.block import Block
from weft.graph.message.scores import GATv2Score as GATv2Score
from weft.graph.sparse import Features
from weft.layers.attention_layer import AttentionLayer
from weft.layers.base import Linear, edge_attr, glorot_, layers


@layers.add("gatv2")
class GATv2(AttentionLayer):
    """h'ᵥ = Σ αᵤᵥ W_l hᵤ with α = softmax over incoming edges of a·LeakyReLU(W_l hᵤ + W_r hᵥ + W_e e)."""

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        heads: int = 1,
        concat: bool = True,
        negative_slope: float = 0.2,
        attention_dropout: float = 0.0,
        edge_features: int = 0,
        share_weights: bool = False,
        bias: bool = True,
    ) -> None:
        super().__init__(in_features, out_features, heads=heads, concat=concat, dropout=attention_dropout)
        self.negative_slope = negative_slope
        self.share_weights = share_weights
        self.lin_l = self._transform(bias)
        self.lin_r = self.lin_l if share_weights else self._transform(bias)
        self.att = nn.Parameter(torch.empty(1, heads, out_features))
        self.lin_edge = self._edge_linear(edge_features)
        self.bias = self._zero_bias(bias)
        glorot_(self.att)

    @property
    def edge_width(self) -> int:
        """Values that are made of the features of an edge: a row of every head."""
        return 0 if self.lin_edge is None else self.heads * self.out_features

    def forward(self, block: Block, h: Features) -> Tensor:
        shape = (-1, self.heads, self.out_features)
        src = self.lin_l(h).view(shape)
        dst = block.dst(src) if self.share_weights else self.lin_r(block.dst(h)).view(shape)
        edge = None if self.lin_edge is None else self.lin_edge(edge_attr(self, block)).view(shape)
        score = GATv2Score(src, dst, self.att[0], self.negative_slope, edge)
        return self._join(block.attend(score, src, self._dropout(), layer=self.draw_layer))

    def _transform(self, bias: bool) -> Linear:
        return Linear(self.in_features, self.heads * self.out_features, bias=bias, glorot=True)
