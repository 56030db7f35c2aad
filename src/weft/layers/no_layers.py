"""What stands for a model where a strategy learns a row for each node: there are no layers."""

from typing import Any

from torch import Tensor, nn

from weft.errors import InputError


class NoLayers(nn.Module):
    """The place of a task's head. Rows of nodes are in the tables of the run, not here."""

    hops = 1

    def forward(self, blocks: Any, x: Any) -> Tensor:
        """Refuse to make rows of features: they are learned."""
        raise InputError("a model without layers makes no rows; train it with strategy.name = 'buckets'")


NO_LAYERS = f"{NoLayers.__module__}:{NoLayers.__qualname__}"
"""The name of the class, as runs keep it."""
