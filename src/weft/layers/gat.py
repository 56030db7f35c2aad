"""GAT: Veličković et al., Graph Attention Networks, 2018."""

import torch
from torch import Tensor, nn

from weft.graph.block import Block
from weft.graph.scores import Additive
from weft.graph.sparse import Features
from weft.layers.attention import Attention
from weft.layers.base import Linear, edge_attr, glorot_, layers, linear


@layers.add("gat")
class GAT(Attention):
    """h'ᵥ = Σ αᵤᵥ W hᵤ with α = softmax over incoming edges of LeakyReLU(aₛ·W hᵤ + a_d·W hᵥ + aₑ·W_e e)."""

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
        bias: bool = True,
    ) -> None:
        super().__init__(in_features, out_features, heads=heads, concat=concat, dropout=attention_dropout)
        self.negative_slope = negative_slope
        self.lin = Linear(in_features, heads * out_features, bias=False, glorot=True)
        self.att_src = nn.Parameter(torch.empty(1, heads, out_features))
        self.att_dst = nn.Parameter(torch.empty(1, heads, out_features))
        self.lin_edge = self._edge_linear(edge_features)
        self.att_edge = nn.Parameter(torch.empty(1, heads, out_features)) if edge_features else None
        self.bias = self._zero_bias(bias)
        for value in (self.att_src, self.att_dst, self.att_edge):
            if value is not None:
                glorot_(value)

    def forward(self, block: Block, h: Features) -> Tensor:
        value = self.lin(h)
        score_src, score_dst = self._scores(h, value).chunk(2, dim=1)
        score = Additive(score_src, block.dst(score_dst), self.negative_slope, self._edge_scores(block))
        heads = value.view(-1, self.heads, self.out_features)
        return self._join(block.attend(score, heads, self._dropout(), layer=self.draw_layer))

    def _scores(self, h: Features, value: Tensor) -> Tensor:
        """Return [rows, 2 · heads]: both halves of the score by one product, from the narrower side."""
        both = torch.cat([head_columns(self.att_src), head_columns(self.att_dst)], dim=1)
        if not isinstance(h, Tensor) or self.in_features < value.shape[1]:
            return linear(h, both.t() @ self.lin.weight)
        return value @ both

    def _edge_scores(self, block: Block) -> Tensor | None:
        if self.lin_edge is None or self.att_edge is None:
            return None
        # (W_e e)·aₑ = e·(W_eᵀ aₑ): the transformed edge features are never formed.
        return edge_attr(self, block) @ (head_columns(self.att_edge).t() @ self.lin_edge.weight).t()


def head_columns(a: Tensor) -> Tensor:
    """Return columns [heads · D, heads] such that x @ columns is x.view(N, H, D)·a summed over D."""
    _, heads, width = a.shape
    eye = torch.eye(heads, dtype=a.dtype, device=a.device)
    return (a[0][:, :, None] * eye[:, None, :]).reshape(heads * width, heads)
