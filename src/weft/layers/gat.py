"""GAT: Veličković et al., Graph Attention Networks, 2018."""

import torch
from torch import Tensor, nn

from weft import kernels
from weft.graph.message.block import Block
from weft.graph.message.scores import Additive
from weft.graph.sparse import Features
from weft.layers.attention_layer import AttentionLayer
from weft.layers.base import Linear, edge_attr, glorot_, layers, linear


@layers.add("gat")
class GAT(AttentionLayer):
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

    @property
    def edge_width(self) -> int:
        """Values that are made of the features of an edge: one score per head."""
        return 0 if self.lin_edge is None else self.heads

    def forward(self, block: Block, h: Features) -> Tensor:
        value, score_src, score_dst = projected(h, self.lin, self.att_src, self.att_dst)
        score = Additive(score_src, block.dst(score_dst), self.negative_slope, self._edge_scores(block))
        heads = value.view(-1, self.heads, self.out_features)
        return self._join(block.attend(score, heads, self._dropout(), layer=self.draw_layer))

    def _edge_scores(self, block: Block) -> Tensor | None:
        if self.lin_edge is None or self.att_edge is None:
            return None
        # (W_e e)·aₑ = e·(W_eᵀ aₑ): the transformed edge features are never formed.
        return edge_attr(self, block) @ (head_columns(self.att_edge).t() @ self.lin_edge.weight).t()


def projected(h: Features, lin: Linear, att_src: Tensor, att_dst: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return lin(h), [rows, heads · D], and its products with att_src and att_dst a head, [rows, heads]."""
    both = torch.cat([head_columns(att_src), head_columns(att_dst)], dim=1)
    if isinstance(h, Tensor) and h.is_cpu and not torch.is_autocast_enabled("cpu"):
        return kernels.project(h, lin.weight, both)
    # from the narrower side, by one product
    narrow = not isinstance(h, Tensor) or lin.in_features < lin.out_features
    value = lin(h)
    scores = linear(h, both.t() @ lin.weight) if narrow else value @ both
    score_src, score_dst = scores.chunk(2, dim=1)
    return value, score_src, score_dst


def head_columns(a: Tensor) -> Tensor:
    """Return columns [heads · D, heads] such that x @ columns is x.view(N, H, D)·a summed over D."""
    _, heads, width = a.shape
    eye = torch.eye(heads, dtype=a.dtype, device=a.device)
    return (a[0][:, :, None] * eye[:, None, :]).reshape(heads * width, heads)
