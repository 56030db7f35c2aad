"""Graphs of messages: how nodes are made and what is known of their values.

A graph is torch.fx over torch's operators. Every node carries `meta["val"]`, a tensor without values whose
first size counts edges (or a multiple), and every input its `meta["role"]`. The end of a message is an
explicit `reduced` node, so that passes can move operators behind it.
"""

import math
from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor, fx
from torch.utils._pytree import tree_map

from weft.compiler.tracing.trace import EDGES, MODE

aten = torch.ops.aten
_SAME_NUMBERS = frozenset(
    ["view", "expand", "reshape", "unsqueeze", "alias", "clone", "contiguous", "detach"]
)


def reduced(kind: str, *values: Tensor) -> Tensor:
    """Stand for the reduction over the edges of each row; a graph with it is taken apart, never run."""
    return values[-1]


def spread(rows: Tensor) -> Tensor:
    """Stand for rows of reduced values, read again by the edges that go to each."""
    return rows


def value(node: fx.Node) -> Tensor:
    """Return the tensor without values that has the shape of a node."""
    return cast(Tensor, node.meta["val"])


def has_rows(node: fx.Node) -> bool:
    """Return whether the first size of a node's value counts edges."""
    shape = value(node).shape
    return bool(len(shape) and shape[0] and shape[0] % EDGES == 0)


def item_shape(node: fx.Node) -> tuple[int, ...]:
    """Return the shape of a node's value for one edge; of a shared one, its shape."""
    shape = tuple(value(node).shape)
    if not has_rows(node):
        return shape
    fold = shape[0] // EDGES
    return shape[1:] if fold == 1 else (fold, *shape[1:])


def width(node: fx.Node) -> int:
    """Return the numbers of a node's value for one edge."""
    return math.prod(item_shape(node))


def name_of(node: fx.Node) -> str:
    """Return the name of the operator: "mm" of aten.mm.default, "" of an input or an output."""
    if node.op != "call_function":
        return ""
    if isinstance(node.target, torch._ops.OpOverload):
        return node.target._schema.name.split("::")[1]
    return cast(Callable[..., Any], node.target).__name__


def plain_name(node: fx.Node) -> str:
    """Return the name of an operator without options, "" where it has some: a quotient may be rounded."""
    return "" if node.kwargs else name_of(node)


def emit(at: fx.Node, target: Callable[..., Any], *args: Any, **kwargs: Any) -> fx.Node:
    """Return a new node before another, with the shape of its value."""
    with at.graph.inserting_before(at):
        node = at.graph.call_function(target, args, kwargs)
    given = tree_map(lambda each: value(each) if isinstance(each, fx.Node) else each, (args, kwargs))
    with MODE, torch.no_grad():
        node.meta["val"] = target(*given[0], **given[1])
    return node


def replace(node: fx.Node, new: fx.Node) -> None:
    """Put a node in the place of another, which goes."""
    node.replace_all_uses_with(new)
    node.graph.erase_node(node)


def replace_each(graph: fx.Graph, better: Callable[[fx.Node], fx.Node | None]) -> None:
    """Put in the place of each node what is better, where there is something; then tidy the graph."""
    for node in list(graph.nodes):
        new = better(node)
        if new is not None:
            replace(node, new)
    tidy(graph)


def reductions(graph: fx.Graph) -> list[fx.Node]:
    """Return the nodes that reduce over edges, in order."""
    return [node for node in graph.nodes if node.target is reduced]


def are_numbers(node: Any) -> bool:
    """Return whether a node is the number of each edge's row, repeated for each feature."""
    while isinstance(node, fx.Node) and name_of(node) in _SAME_NUMBERS:
        node = node.args[0]
    return isinstance(node, fx.Node) and node.meta.get("role") == "index"


def row_counts(at: fx.Node, dtype: torch.dtype) -> fx.Node:
    """Return the input that has the number of edges of each row, in this type."""
    graph = at.graph
    inputs = [each for each in graph.nodes if each.op == "placeholder"]
    found = next((each for each in inputs if each.name == "count"), None)
    if found is None:
        with graph.inserting_after(inputs[-1]):
            found = graph.placeholder("count")
        found.meta["role"] = "destination"
        with MODE:
            found.meta["val"] = value(inputs[0]).new_empty(EDGES, dtype=dtype)
    return found if value(found).dtype == dtype else emit(at, aten._to_copy.default, found, dtype=dtype)


def close(graph: fx.Graph, kind: str) -> None:
    """End a traced graph with the reduction of what it returns; `own`: it has reduced it itself."""
    if kind == "own":
        return
    output = next(node for node in graph.nodes if node.op == "output")
    made = output.args[0]
    values = made if isinstance(made, tuple) else (made,)
    if (len(values) == 2) != (kind == "softmax") or (len(values) == 2 and not _weighs(*values)):
        return
    node = emit(output, reduced, kind, *values)
    output.args = (node,)


def _weighs(score: Any, attended: Any) -> bool:
    """Return whether a score is a number, or one a head, of what it weighs; no whole number."""
    own = value(score).shape
    if not all(value(each).is_floating_point() for each in (score, attended)):
        return False
    return len(own) in (1, 2) and value(attended).shape[: len(own)] == own


def tidy(graph: fx.Graph) -> None:
    """Merge equal nodes and drop those that nothing needs."""
    known: dict[Any, fx.Node] = {}
    for node in list(graph.nodes):
        if node.op != "call_function":
            continue
        key = (node.target, frozen(node.args), frozen(node.kwargs))
        if key in known:
            replace(node, known[key])
        else:
            known[key] = node
    graph.eliminate_dead_code()
    graph.lint()


def frozen(value: Any) -> Any:
    """Return arguments as something that has a hash and tells 1 from 1.0, and 0.0 from -0.0."""
    if isinstance(value, (tuple, list)):
        return tuple(frozen(each) for each in value)
    if isinstance(value, dict):
        return tuple((name, frozen(each)) for name, each in value.items())
    if isinstance(value, float):
        return (float, repr(value))
    return (type(value), value) if isinstance(value, int) else value
