"""A rewritten graph in three stages: what runs on nodes before, programs on edges, what runs on rows after.

The first and the last are modules of torch's own operators, so autograd takes their gradients.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, fx
from torch.utils._pytree import tree_map

from weft.compiler.annotate import residency
from weft.compiler.graphs import aten, frozen, item_shape, value
from weft.compiler.lower import Loaded
from weft.compiler.tracing.captures import NotCompiled
from weft.compiler.tracing.trace import EDGES, MODE

Stage = Callable[..., Any]
"""Takes the number of sources, destinations and edges, then its inputs; returns a list."""

_NARROW = 16
"""Columns of products that are made together: parts of a wider one are not copied apart for nothing."""
_ROWS = {
    "source": "num_src",
    "destination": "num_dst",
    "reduced": "num_dst",
    "edge": "num_edges",
    "pair": "num_edges",
}


def stage(
    inputs: Sequence[fx.Node],
    outputs: Iterable[fx.Node | Loaded],
    twins: Mapping[fx.Node, fx.Node] = MappingProxyType({}),
) -> Stage:
    """Return the part of a graph between some nodes and others, as a function.

    `twins` are inputs that are one tensor with others: what is made of both alike is made once.
    """
    copy, outputs = _Copy(inputs, twins), list(outputs)
    for each in _shared_by_all([each.node if isinstance(each, Loaded) else each for each in outputs], inputs):
        copy.node(each)
    made = [copy.loaded(each) if isinstance(each, Loaded) else copy.node(each) for each in outputs]
    copy.graph.output(made)
    _join_narrow(copy.graph, copy.columns)
    return fx.GraphModule(torch.nn.Module(), copy.graph).forward


def check_stage(made: Stage, inputs: Sequence[fx.Node], outputs: Sequence[fx.Node | Loaded]) -> None:
    """Raise `NotCompiled` unless a stage gives what it was made for, tried on tensors without values."""
    with MODE, torch.no_grad():
        given = made(EDGES, EDGES, EDGES, *(value(each) for each in inputs))
    for each, found in zip(outputs, given, strict=True):
        wanted = _loaded_shape(each) if isinstance(each, Loaded) else tuple(value(each).shape)
        if tuple(found.shape) != wanted:
            raise NotCompiled(f"a stage gives {list(found.shape)} in the place of {list(wanted)}")


def _loaded_shape(load: Loaded) -> tuple[int, ...]:
    return load.shape if load.source in ("shared", "weight") else (EDGES, *load.shape)


def stage_when_called(inputs: Sequence[fx.Node], outputs: Sequence[fx.Node]) -> Stage:
    """Return the same, made at its first call: few need what stands in for a program."""

    @cache
    def made() -> Stage:
        return stage(inputs, outputs)

    return lambda *given: made()(*given)


def _shared_by_all(outputs: Sequence[fx.Node], inputs: Sequence[fx.Node]) -> list[fx.Node]:
    """Return what of the nodes behind some is made once and not of rows, in order."""
    found, stack = set(inputs), list(outputs)
    while stack:
        each = stack.pop()
        if each not in found:
            found.add(each)
            stack += each.all_input_nodes
    ordered = outputs[0].graph.nodes if outputs else ()
    return [each for each in ordered if each in found - set(inputs) and residency(each) == "shared"]


def _join_narrow(graph: fx.Graph, columns: Mapping[fx.Node, int]) -> None:
    """Multiply rows once with the columns of several narrow matrices, such as those of two scores.

    Matrices, which are shared, come before all products.
    """
    groups: dict[Any, list[fx.Node]] = {}
    for node in graph.nodes:
        if columns.get(node, _NARROW + 1) <= _NARROW:
            groups.setdefault(node.args[0], []).append(node)
    for rows, products in groups.items():
        if len(products) > 1:
            with graph.inserting_before(products[0]):
                matrix = graph.call_function(aten.cat.default, ([each.args[1] for each in products], 1))
                whole, start = graph.call_function(aten.mm.default, (rows, matrix)), 0
                for each in products:
                    bounds = (start, start := start + columns[each])
                    each.replace_all_uses_with(graph.call_function(aten.slice.Tensor, (whole, 1, *bounds)))
            for each in products:
                graph.erase_node(each)


class _Copy:
    """A new graph of copied nodes, in which sizes that counted edges are arguments."""

    def __init__(self, inputs: Sequence[fx.Node], twins: Mapping[fx.Node, fx.Node]) -> None:
        self.graph = fx.Graph()
        self.sizes = {name: self.graph.placeholder(name) for name in ("num_src", "num_dst", "num_edges")}
        self.made = {each: self.graph.placeholder(f"input_{place}") for place, each in enumerate(inputs)}
        self.known: dict[Any, fx.Node] = {}
        self.columns: dict[fx.Node, int] = {}
        """Of the products of rows and shared matrices."""
        for each, first in twins.items():
            self.made[each] = self.made[first]
            self.sizes["num_dst"] = self.sizes["num_src"]  # one tensor is as long as itself

    def node(self, node: fx.Node) -> fx.Node:
        if node not in self.made:
            for each in node.all_input_nodes:
                self.node(each)
            args, kwargs = tree_map(lambda each: self._argument(each, node), (node.args, dict(node.kwargs)))
            self.made[node] = self._call(node.target, args, kwargs)
            if node.target is aten.mm.default and residency(node.args[1]) == "shared" != residency(node):  # type: ignore[arg-type]
                self.columns[self.made[node]] = node.meta["val"].shape[1]
        return self.made[node]

    def _call(self, target: Any, args: Any, kwargs: Any = MappingProxyType({})) -> fx.Node:
        key = target, frozen(args), frozen(dict(kwargs))
        if key not in self.known:
            self.known[key] = self.graph.call_function(target, args, dict(kwargs))
        return self.known[key]

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
            made = self._call(_as_loaded, (made, *sizes, load.dtype))
        return self._call(aten.contiguous.default, (made,))

    def _argument(self, given: Any, node: fx.Node) -> Any:
        if isinstance(given, fx.Node):
            return self.made[given]
        if type(given) is int and given and given % EDGES == 0:
            return self._size(given, node)
        return given

    def _size(self, size: int, node: fx.Node) -> fx.Node:
        rows = self.sizes[_ROWS[residency(node)]]
        fold = size // EDGES
        return rows if fold == 1 else self._call(_times, (rows, fold))


def _times(rows: int, fold: int) -> int:
    return rows * fold


def _as_loaded(
    tensor: Tensor, own: list[int], repeated: list[int], shape: list[int], dtype: torch.dtype
) -> Tensor:
    """Return a tensor reshaped, repeated and reshaped again."""
    return tensor.reshape(own).expand(repeated).reshape(shape).to(dtype)
