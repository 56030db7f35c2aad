"""What the attention layers share: options, the output of several heads, dropout of attention weights."""

from typing import Any

import torch
from torch import Tensor, nn

from weft.errors import InputError
from weft.layers.base import GraphInfo, Layer, Linear, require_positive, require_probability


class AttentionLayer(Layer):
    """Base of layers with heads: `concat` puts them side by side, else they are averaged."""

    self_loops = True
    output_is_free = True
    takes_edge_features = True
    bias: nn.Parameter | None

    def __init__(
        self, in_features: int, out_features: int, *, heads: int, concat: bool, dropout: float
    ) -> None:
        super().__init__(in_features, out_features)
        require_positive(self, heads=heads)
        require_probability(self, attention_dropout=dropout)
        self.heads = heads
        self.concat = concat
        self.attention_dropout = float(dropout)
        self.draw_layer = 0

    @property
    def out_width(self) -> int:
        """Columns of the output: heads · out_features when heads are concatenated."""
        return self.out_features * (self.heads if self.concat else 1)

    @classmethod
    def stacked(
        cls,
        in_features: int,
        out_features: int,
        *,
        hidden: int,
        layers: int,
        info: GraphInfo,
        heads: int = 8,
        out_heads: int = 1,
        **options: Any,
    ) -> list[Layer]:
        """Return layers that are `hidden` wide over all heads; the last averages `out_heads`."""
        if heads <= 0 or hidden % heads:
            raise InputError(f"{cls.__name__}: hidden={hidden} must be a multiple of heads={heads}")
        options = cls.options_of(info) | options
        widths = [in_features, *[hidden] * (layers - 1)]
        inner = [cls(width, hidden // heads, heads=heads, **options) for width in widths[:-1]]
        return [*inner, cls(widths[-1], out_features, heads=out_heads, concat=False, **options)]

    def _join(self, out: Tensor) -> Tensor:
        """Return [num_dst, out_width] from [num_dst, heads, out_features], with the bias."""
        if self.concat or self.heads == 1:
            # a change in place of a view would cost autograd copies of the whole gradient
            return (out if self.bias is None else out.add_(self.bias.view(out.shape[1:]))).flatten(1)
        mean = out.mean(dim=1)
        return mean if self.bias is None else mean.add_(self.bias)

    def _dropout(self) -> float:
        return self.attention_dropout if self.training else 0.0

    def _edge_linear(self, edge_features: int) -> Linear | None:
        if edge_features == 0:
            return None
        require_positive(self, edge_features=edge_features)
        return Linear(edge_features, self.heads * self.out_features, bias=False, glorot=True)

    def _zero_bias(self, bias: bool) -> nn.Parameter | None:
        return nn.Parameter(torch.zeros(self.out_width)) if bias else None
