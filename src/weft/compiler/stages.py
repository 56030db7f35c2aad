"""A rewritten graph in three stages: what runs on nodes before, programs on edges, what runs on rows after.

The first and the last are modules of torch's own operators, so autograd takes their gradients.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor, fx
from torch.utils._pytree import tree_map

from weft.compiler.annotate import residency
from weft.compiler.graphs import aten, item_shape
from weft.compiler.lower import Loaded
from weft.compiler.trace import EDGES

Stage = Callable[..., Any]
"""Takes the number of sources, destinations and edges, then its inputs; returns a list."""

_ROWS = {
    "source": "num_src",
    "destination": "num_dst",
    "reduced": "num_dst",
    "edge": "num_edges",
    "pair": "num_edges",
}


def stage(inputs: Sequence[fx.Node], outputs: Iterable[fx.Node | Loaded]) -> Stage:
    """Return the part of a graph between some nodes and others, as a function."""
    copy = _Copy(inputs)
    made = [copy.loaded(each) if isinstance(each, Loaded) else copy.node(each) for each in outputs]
    copy.graph.output(made)
    return fx.GraphModule(torch.nn.Module(), copy.graph).forward


def stage_when_called(inputs: Sequence[fx.Node], outputs: Sequence[fx.Node]) -> Stage:
    """Return the same, made at its first call: few need what stands in for a program."""

    @cache
    def made() -> Stage:
        return stage(inputs, outputs)

    return lambda *given: made()(*given)


class _Copy:
    """A new graph of copied nodes, in which sizes that counted edges are arguments."""

    def __init__(self, inputs: Sequence[fx.Node]) -> None:
        self.graph = fx.Graph()
        self.sizes = {name: self.graph.placeholder(name) for name in ("num_src", "num_dst", "num_edges")}
        self.made = {each: self.graph.placeholder(f"input_{place}") for place, each in enumerate(inputs)}

    def node(self, node: fx.Node) -> fx.Node:
        if node not in self.made:
            for each in node.all_input_nodes:
                self.node(each)
            args, kwargs = tree_map(lambda each: self._argument(each, node), (node.args, dict(node.kwargs)))
            self.made[node] = self.graph.call_function(node.target, args, kwargs)  # type: ignore[arg-type]
        return self.made[node]

    def loaded(self, load: Loaded) -> fx.Node:
        """Return the tensor that a program loads, [rows, heads, width] or, shared by all, [heads, width]."""
        made = self.node(load.node)
        if load.source != "weight":
            rows: list[Any] = [] if load.source == "shared" else [self._size(EDGES, load.node)]
            own = item_shape(load.node)
            own = own[len(own) - len(load.item) :] if len(own) > len(load.item) else own
            sizes = (
                [*rows, *[1] * (len(load.item) - len(own)), *own],
                [*rows, *load.item],
                [*rows, *load.shape],
            )
            made = self.graph.call_function(_as_loaded, (made, *sizes, load.dtype))
        return self.graph.call_function(aten.contiguous.default, (made,))

    def _argument(self, value: Any, node: fx.Node) -> Any:
        if isinstance(value, fx.Node):
            return self.made[value]
        if type(value) is int and value and value % EDGES == 0:
            return self._size(value, node)
        return value

    def _size(self, size: int, node: fx.Node) -> fx.Node:
        rows = self.sizes[_ROWS[residency(node)]]
        fold = size // EDGES
        return rows if fold == 1 else self.graph.call_function(_times, (rows, fold))


def _times(rows: int, fold: int) -> int:
    return rows * fold


def _as_loaded(
    tensor: Tensor, own: list[int], repeated: list[int], shape: list[int], dtype: torch.dtype
) -> Tensor:
    """Return a tensor reshaped, repeated and reshaped again."""
    return tensor.reshape(own).expand(repeated).reshape(shape).to(dtype)
