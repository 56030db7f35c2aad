"""A model that is called as `model(x, edge_index)`, as PyG's are, on blocks: torch.fx follows its forward.

Its convolutions become layers, and what lies between them is done row by row; so it trains wherever a model
called as `model(blocks, x)` does. Weights, their names and the class are those of the user's model.
"""

from inspect import signature
from typing import Any

from torch import Tensor, nn

from weft.errors import InputError
from weft.graph.graph import Graph
from weft.graph.message.block import Block
from weft.layers.base import Blocks
from weft.tasks.base import head_of
from weft.train.inference.slicing import SlicedModel, trace


class Followed(nn.Module):
    """The user's model, called with blocks."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        # What a model does may depend on its mode, as dropout does.
        learning = trace(model, training=True)
        self._ways: dict[bool, SlicedModel] = {True: learning, False: trace(model, wrapped=learning.wrapped)}
        self.layers = nn.ModuleList(learning.wrapped.values())

    def forward(self, blocks: Blocks, x: Any) -> Tensor:
        """Return a row for each destination of the last block."""
        way = self._ways[self.training]
        by_layer = [blocks] * len(way.layers) if isinstance(blocks, Block) else blocks
        h = x
        for index in range(len(way.layers)):
            h = way.run(index, [by_layer[index]], h)
        return way.finish(h)

    def add_module(self, name: str, module: nn.Module | None) -> None:
        """Put a module, such as a task's head, on the user's model, which keeps it."""
        if "model" in self._modules:
            self.model.add_module(name, module)
        else:
            super().add_module(name, module)

    @property
    def task_head(self) -> nn.Module | None:
        """The head that a task put on the user's model."""
        return head_of(self.model)

    def check(self, graph: Graph) -> None:
        """Refuse a graph in which a convolution would see other self loops than in the user's model.

        Convolutions add their own: a graph that is given them would show them to all layers.
        """
        self._ways[False].check(graph)

    def state_dict(self, *args: Any, **options: Any) -> Any:
        """Return the weights by the names that they have in the user's model."""
        return self.model.state_dict(*args, **options)


def takes_edge_index(model: nn.Module) -> bool:
    """Return whether a model is called with the edges themselves."""
    return "edge_index" in signature(model.forward).parameters


def followed(model: nn.Module) -> nn.Module:
    """Return a model to be called with blocks: itself, or one that follows what it does with edges."""
    if not takes_edge_index(model):
        return model
    try:
        return Followed(model)
    except InputError as error:
        reason = str(error).partition("; give weft.infer")[0]
        raise InputError(
            f"model: {type(model).__name__} is called with an edge_index, and {reason}; wrap its "
            "convolutions in weft.nn.PyG and call it as model(blocks, x), or train it in its own loop after "
            "weft.accelerate(model)"
        ) from None


def own_of(model: nn.Module) -> nn.Module:
    """Return the user's model."""
    return model.model if isinstance(model, Followed) else model
