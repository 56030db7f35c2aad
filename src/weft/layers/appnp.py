"""APPNP: Gasteiger, Bojchevski and Günnemann, Predict then Propagate, 2019."""

from itertools import pairwise
from typing import Any

from torch import Tensor, nn

from weft.errors import InputError
from weft.graph.sparse import Features
from weft.layers.base import (
    Blocks,
    GraphInfo,
    Layer,
    Linear,
    gcn_scales,
    hop_blocks,
    layers,
    require_positive,
    require_probability,
)
from weft.layers.dropout import Dropout


@layers.add("appnp")
class APPNP(Layer):
    """z ← (1 - α) D^-1/2 A D^-1/2 z + α MLP(h), `hops` times: personalised PageRank of predictions.

    `hidden` units between the `depth` linear maps of the MLP; with depth 1 there are none.
    """

    self_loops = True

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        hops: int = 10,
        alpha: float = 0.1,
        hidden: int = 64,
        depth: int = 2,
        dropout: float = 0.0,
    ) -> None:
        super().__init__(in_features, out_features)
        require_positive(self, hops=hops, hidden=hidden, depth=depth)
        require_probability(self, dropout=dropout)
        if not 0.0 <= alpha <= 1.0:
            raise InputError(f"APPNP: alpha must be in [0, 1], got {alpha!r}")
        self.hops = hops
        self.alpha = alpha
        widths = [in_features, *[hidden] * (depth - 1), out_features]
        self.lins = nn.ModuleList(Linear(a, b) for a, b in pairwise(widths))
        self.drops = nn.ModuleList(Dropout(dropout) for _ in range(depth))

    @classmethod
    def stacked(
        cls,
        in_features: int,
        out_features: int,
        *,
        hidden: int,
        layers: int,
        info: GraphInfo,
        dropout: float = 0.0,
        **options: Any,
    ) -> list[Layer]:
        """Return the one layer that is the whole model; `layers` is the depth of its network."""
        return [
            cls(in_features, out_features, hidden=hidden, **({"depth": layers, "dropout": dropout} | options))
        ]

    def forward(self, blocks: Blocks, h: Features) -> Tensor:
        hops = hop_blocks(self, blocks)
        root = self._predict(hops[0], h)
        z = root
        for block in hops:
            root = block.dst(root)
            z = block.aggregate(z, "sum", **gcn_scales(block, z.dtype))
            z = z.mul_(1.0 - self.alpha).add_(root, alpha=self.alpha)
        return z

    def _predict(self, block: Any, h: Any) -> Tensor:
        for number, (drop, lin) in enumerate(zip(self.drops, self.lins)):
            h = lin(drop(block, h)) if number == 0 else lin(drop(block, h.relu_()))
        return h  # type: ignore[no-any-return]
