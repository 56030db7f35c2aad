"""SGC: Wu et al., Simplifying Graph Convolutional Networks, 2019."""

from typing import Any

from torch import Tensor

from weft.graph.sparse import Features
from weft.layers.base import (
    Blocks,
    GraphInfo,
    Layer,
    Linear,
    gcn_scales,
    hop_blocks,
    layers,
    linear,
    require_positive,
)


@layers.add("sgc")
class SGC(Layer):
    """h' = (D^-1/2 A D^-1/2)^hops h Wᵀ + b: one linear map of features averaged over `hops` hops."""

    self_loops = True

    def __init__(self, in_features: int, out_features: int, *, hops: int = 2, bias: bool = True) -> None:
        super().__init__(in_features, out_features)
        require_positive(self, hops=hops)
        self.hops = hops
        self.lin = Linear(in_features, out_features, bias=bias)

    @classmethod
    def stacked(
        cls, in_features: int, out_features: int, *, hidden: int, layers: int, info: GraphInfo, **options: Any
    ) -> list[Layer]:
        """Return the one layer that is the whole model, with as many hops as layers were asked for."""
        return [cls(in_features, out_features, **({"hops": layers} | options))]

    def forward(self, blocks: Blocks, h: Features) -> Tensor:
        hops = hop_blocks(self, blocks)
        # Where one hop reads wide rows (those of a history), the hops before it give wide rows.
        wide = any(block.prefers_aggregate_first(h) for block in hops[1:])
        while hops and (wide or hops[0].prefers_aggregate_first(h)):
            # Every hop of a constant input is remembered by its block; in the end one product is left.
            block = hops.pop(0)
            known = block.prefers_aggregate_first(h)
            h = block.aggregate(h, "sum", **gcn_scales(block, h.dtype))
            for following in hops[:1] if known else ():
                following.mark_constant(h)
        if not hops:
            out: Tensor = self.lin(h)
            return out
        narrow = linear(h, self.lin.weight)
        for block in hops:
            narrow = block.aggregate(narrow, "sum", **gcn_scales(block, narrow.dtype))
        return narrow if self.lin.bias is None else narrow.add_(self.lin.bias)
