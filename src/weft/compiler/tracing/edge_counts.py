"""Whether two graphs of a message, of many edges and of few, are one but for the number of edges.

A message that branches on that number or computes with it in Python has another graph for each: numbers in
it differ that are no count of edges.
"""

from typing import Any

from torch import Tensor, fx

_FEWEST = 22  # even, while the many are odd


def few_edges(graph: fx.Graph, many: int) -> int:
    """Return a small even number that is no size in a graph of many edges."""
    values = [node.meta.get("val") for node in graph.nodes]
    sizes = {size for each in values if isinstance(each, Tensor) for size in each.shape}
    return next(few for few in range(_FEWEST, many, 2) if few not in sizes)


def same_but_for_edges(one: fx.Graph, two: fx.Graph, many: int, few: int) -> bool:
    """Return whether the operators and numbers of two graphs are equal, counts of edges apart."""
    if len(one.nodes) != len(two.nodes):
        return False
    pairs = dict(zip(one.nodes, two.nodes))

    def same(a: Any, b: Any) -> bool:
        if isinstance(a, fx.Node):
            return pairs[a] is b
        if isinstance(a, (tuple, list)):
            return isinstance(b, (tuple, list)) and len(a) == len(b) and all(map(same, a, b))
        if isinstance(a, dict):
            return isinstance(b, dict) and a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
        if type(a) is int and type(b) is int and a and a % many == 0:
            return b == a // many * few
        return type(a) is type(b) and (a == b or (a != a and b != b))

    return all(
        (a.op, a.target) == (b.op, b.target) and same(a.args, b.args) and same(a.kwargs, b.kwargs)
        for a, b in pairs.items()
    )
