"""MoNet: Monti et al., Geometric Deep Learning on Graphs and Manifolds Using Mixture Model CNNs, 2017."""

from typing import Any, Literal

import torch
from torch import Tensor, nn

from weft.graph.message.block import Block
from weft.graph.sparse import Features
from weft.layers.base import Layer, Linear, edge_attr, glorot_, inverse_sqrt, layers, linear, require_positive


@layers.add("monet")
class MoNet(Layer):
    """h'ᵥ = 1/dᵥ Σ_u Σ_k w_k(e) W_k hᵤ + W_r hᵥ + b with Gaussians w_k of the edge's pseudo-coordinates.

    The coordinates are the edge attribute when the layer is built with `edge_features`, else (dᵤ^-1/2,
    dᵥ^-1/2) as in the paper's citation graphs.
    """

    takes_edge_features = True

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        kernels: int = 3,
        edge_features: int = 0,
        root_weight: bool = True,
        bias: bool = True,
    ) -> None:
        super().__init__(in_features, out_features)
        require_positive(self, kernels=kernels)
        self.kernels = kernels
        self.edge_features = edge_features
        dim = edge_features or 2
        self.g = nn.Parameter(torch.empty(in_features, out_features * kernels))
        self.mu = nn.Parameter(torch.empty(kernels, dim))
        self.sigma = nn.Parameter(torch.empty(kernels, dim))
        self.root = Linear(in_features, out_features, bias=False, glorot=True) if root_weight else None
        self.bias = nn.Parameter(torch.zeros(out_features)) if bias else None
        for value in (self.g, self.mu, self.sigma):
            glorot_(value)

    def forward(self, block: Block, h: Features) -> Tensor:
        out = self._mixed(block, h, self._coordinates(block))
        if self.root is not None:
            out = out + self.root(block.dst(h))
        return out if self.bias is None else out + self.bias

    def _mixed(self, block: Block, h: Features, coordinates: Tensor) -> Tensor:
        """Return the means of rows under all kernels, mixed."""
        if block.takes_messages and isinstance(h, Tensor):
            return block.propagate(
                _message,
                src=(h,),
                edge=(coordinates,),
                reduce="mean",
                params=(self.g, self.mu, self.sigma),
            )
        parts = linear(h, self.g.t()).view(-1, self.kernels, self.out_features)
        weight = _gaussians(coordinates, self.mu, self.sigma)
        # Kernels travel as heads of one weighted aggregation: [E, kernels] weights, nothing of size E x out.
        out: Any = block.aggregate(parts, "mean", weight=weight.to(parts.dtype)).sum(dim=1)
        return out  # type: ignore[no-any-return]

    def _coordinates(self, block: Block) -> Tensor:
        if self.edge_features:
            return edge_attr(self, block)
        return block.cached("degree coordinates", lambda: _degree_coordinates(block))


def _message(neighbour: Tensor, coordinates: Tensor, g: Tensor, mu: Tensor, sigma: Tensor) -> Tensor:
    maps = (neighbour @ g).view(-1, mu.shape[0], g.shape[1] // mu.shape[0])
    return (_gaussians(coordinates, mu, sigma).to(maps.dtype).unsqueeze(-1) * maps).sum(1)


def _gaussians(coordinates: Tensor, mu: Tensor, sigma: Tensor) -> Tensor:
    """Return [E, kernels]; 1e-15 keeps a vanished sigma finite, as in PyG's GMMConv."""
    distance = (coordinates.to(mu.dtype)[:, None, :] - mu).square()
    return (-0.5 * distance / (1e-15 + sigma.square())).sum(dim=-1).exp()


def _degree_coordinates(block: Block) -> Tensor:
    """Return [E, 2]: the inverse square roots of the in-degrees of both ends."""
    ends: tuple[Literal["src", "dst"], ...] = ("src", "dst")
    return torch.stack([inverse_sqrt(block.edge_in_degree(end).double()) for end in ends], dim=1)
