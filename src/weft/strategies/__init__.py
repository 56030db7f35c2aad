"""Ways of doing an epoch over a graph, one a file, entered in a registry by name."""

from weft.strategies.base import Strategy, strategies

__all__ = ["Strategy", "strategies"]
